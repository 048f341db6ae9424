"""
Choosing a cutoff
=================

Find where high severity begins: one cutoff for all outcomes together, with a certificate that says how much it keeps.
"""

# %%
import numpy as np

import mlci
from mlci.base.names import label
from mlci.judging import curves, theory
from mlci.showing import plots

cohort = mlci.build_cohort("synthetic", 8_000, seed=3)
names = list(cohort.outcomes)
known, test = cohort.split("train", "valid"), cohort.split("test")
score, new = (mlci.elixhauser(part)["eci_vw"].to_numpy(float) for part in (known, test))

# %%
# Choose the cutoff that is most aligned with what the outcomes share, on admissions that do not evaluate it.
cutoff = theory.cutoff(score, known.labels(), names)
print(f"high severity: Elixhauser of {cutoff.score:.0f} or more; certificate {cutoff.certificate:.3f}")

# %%
# See what it means for new admissions.
for one in theory.contrasts(new, test.labels(), names, cutoff.score):
    print(f"{label(one.outcome):<24} {one.above.rate:6.1%} above, {one.below.rate:6.1%} below")

# %%
# Is one cutoff for several outcomes justified? See how much the outcomes share, and each outcome's own best cutoff.
found = theory.diagnose(new, test.labels(), names)
print(f"shared direction: {found.energy:.0%} of the outcomes' joint variation; retention {found.retention:.0%}")
print(found.tables()["outcomes"].round(3).to_string(index=False))
plots.save(plots.threshold_scan(found.scan, ["Shared direction", *found.outcomes]), "scan.svg")

# %%
# A cutoff discards the rest of the order. The best spacing keeps the order and improves the scale.
spacing = theory.best_spacing(score, known.labels())
print(f"best single cut {spacing.threshold:.3f}, best monotone score {spacing.certificate:.3f} of the bound")
for name, outcome in zip(names, test.labels().T):
    plain, spaced = (mlci.distance_correlation(s, outcome) for s in (new, spacing.apply(new)))
    print(f"{label(name):<24} dCorr {plain:.3f}, spaced {spaced:.3f}")

# %%
# Draw the risk along the score, with the cutoff.
for name, outcome in zip(names, test.labels().T):
    rates, curve = curves.binned(new, outcome, bins=12), curves.isotonic(new, outcome)
    plots.save(plots.risk_curve(name, rates, curve, cutoff=cutoff.score), f"risk-{name}.svg")
assert np.isfinite(spacing.apply(new)).all()
