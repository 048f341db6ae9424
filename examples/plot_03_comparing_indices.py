"""
Comparing indices
=================

Compare any scores: a classic index, a learned one, a column of your own. This example compares Charlson, Elixhauser and
the number of codes on a synthetic hospital.
"""

# %%
import numpy as np

import mlci
from mlci.judging.evaluate import judge
from mlci.showing import plots

cohort = mlci.build_cohort("synthetic", 6_000, seed=2)
test = cohort.split("test")
scores = {
    "Elixhauser": mlci.elixhauser(test)["eci_vw"],
    "Charlson": mlci.charlson(test)["cci_charlson"],
    "Number of codes": np.diff(test.admissions().offsets).astype(float),
}

# %%
# Evaluate each score for each outcome. The result is one tidy table, with intervals from resampled patients.
found = judge(scores, test, resamples=100)
auroc = found.table.query("metric == 'auroc'").pivot(index="model", columns="outcome", values="value")
print(auroc.round(3).to_string())

# %%
# Draw both kinds of measures. AUROC measures only the order of a score; distance correlation also measures its spacing.
plots.save(plots.benchmark(found.table, "auroc"), "auroc.svg")
plots.save(plots.benchmark(found.table, "dcorr"), "dcorr.svg")

# %%
# Print paired differences from the first score, from the same resamples.
apart = found.differences.query("metric == 'auroc'")
print(apart[["model", "outcome", "value", "low", "high", "p"]].round(3).to_string(index=False))
