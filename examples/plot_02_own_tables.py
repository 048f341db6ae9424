"""
Your own tables
===============

Turn two CSV files into a cohort, with a few lines of TOML.
"""

# %%
# Make tables as a hospital might export them. Columns may have any names.
from pathlib import Path

import numpy as np
import pandas as pd

import mlci

rng = np.random.default_rng(0)
n = 600
admitted = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365 * 24, n), unit="h")
severity = rng.gamma(2, 1, n)
stays = pd.DataFrame(
    {
        "encounter": np.arange(n) + 1,
        "mrn": rng.integers(0, 450, n),
        "in_time": admitted,
        "out_time": admitted + pd.to_timedelta(rng.exponential(30 * severity) + 12, unit="h"),
        "expired": (severity + rng.logistic(size=n) > 5).astype(int),
    }
)
codes = np.array(["I50.9", "N17.9", "E11.9", "I10", "J44.9", "A41.9", "Z51.5", "K21.9"])
chosen = [rng.choice(codes, rng.integers(1, 6), replace=False) for _ in range(n)]
dx = pd.DataFrame(
    [(i + 1, place + 1, code) for i, some in enumerate(chosen) for place, code in enumerate(some)],
    columns=["encounter", "rank", "icd"],
)
folder = Path("own")
folder.mkdir(exist_ok=True)
stays.to_csv(folder / "stays.csv", index=False)
dx.to_csv(folder / "dx.csv", index=False)

# %%
# Describe which column holds what, and how the outcomes are defined.
Path("own.toml").write_text(
    """
[admissions]
table = "stays"
admission_id = "encounter"
subject_id = "mrn"
admitted = "in_time"
discharged = "out_time"

[diagnoses]
table = "dx"
admission_id = "encounter"
code = "icd"
position = "rank"
icd_version = 10

[outcomes]
mortality = "expired"
long_stay = "los_days > 7"
"""
)

# %%
# Build the cohort. Every exclusion is counted, and no patient is in two splits.
cohort = mlci.build_cohort("tables", folder, config="own.toml")
for step in cohort.attrition:
    print(f"{step.left:>6,} left  {step.removed:>5,} removed  {step.rule}")
for name, cells in cohort.describe().items():
    print(f"{name:<36} {cells[0]}")

# %%
# Use it like any other cohort.
cohort.write("cohort.parquet")
print(mlci.elixhauser(mlci.read_cohort("cohort.parquet")).head().to_string(index=False))
