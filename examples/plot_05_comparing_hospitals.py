"""
Comparing hospitals
===================

Which hospitals have more events than expected? The answer depends on the index that calculates what is expected.
"""

# %%
import numpy as np

import mlci
from mlci.showing import plots

# Make twelve synthetic hospitals: one raises the odds of every outcome, one lowers them, one records too many codes.
cohort = mlci.build_cohort("synthetic", 14_000, seed=5, hospitals=12)
truth = dict(zip(cohort.column("hospital"), np.sign(cohort.column("true_quality"))))
print("worse:", [name for name, sign in truth.items() if sign > 0])
print("better:", [name for name, sign in truth.items() if sign < 0])

# %%
# Compare observed and expected long stays by two scores. Each is recalibrated without the hospital that it judges.
scores = {"Charlson": mlci.charlson(cohort).iloc[:, -1].to_numpy(float), "severity": cohort.column("true_severity")}
options = {"by": "hospital", "outcome": "long_stay", "adjust": ["age", "sex"], "overdispersion": "none"}
found = mlci.compare(cohort, scores, **options)
columns = ["group", "observed", "expected", "ratio", "low", "high", "verdict", "rank", "rank_low", "rank_high"]
print(found.of("severity")[columns].round(2).to_string(index=False))

# %%
# The same hospitals by Charlson: the better one is not found, and the worse one, which records too many codes, looks
# half as bad as it is.
print(found.of("Charlson")[columns].round(2).to_string(index=False))
for model in scores:
    plots.save(plots.funnel(found.of(model), found.limits(model)), f"funnel_{model.lower()}.svg")

# %%
# See what the choice of index changes, and which hospitals record more codes than others for similar patients.
print(found.changes.to_string(index=False))
print(found.coding.sort_values("ratio").tail(2).round(2).to_string(index=False))
