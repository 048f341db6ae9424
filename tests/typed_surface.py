"""Show the public names to a type checker: pyright checks this file, and nothing runs it.

Each wrong call has an ignore comment. If pyright accepted the call, it would report the comment as unnecessary.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from typing import assert_type

import numpy as np
import pandas as pd

import mlci

cohort = mlci.read_cohort("cohort.parquet")
assert_type(cohort, mlci.Cohort)
assert_type(cohort.split("test"), mlci.Cohort)

index = mlci.MLCI(seed=11, recipe="paper").fit(cohort)
assert_type(index, mlci.MLCI)
assert_type(index.score(cohort), np.ndarray)
assert_type(index.score([["I50.9", "N17.9"], ["E11.9"]], icd_version=10), np.ndarray)
assert_type(index.risk(cohort), pd.DataFrame)
assert_type([effect.effect for effect in index.explain(["I50.9"])], list[float])
assert_type(mlci.load("model.safetensors"), mlci.MLCI)
assert_type(mlci.evaluate(index.score(cohort), cohort), pd.DataFrame)
assert_type(mlci.compare(cohort, index.score(cohort), by="hospital", outcome="mortality").table, pd.DataFrame)
assert_type(mlci.report.build(index, cohort, command="report.py"), str)

mlci.MLCI(sead=11)  # pyright: ignore[reportCallIssue]
mlci.MLCI(seed="eleven")  # pyright: ignore[reportArgumentType]
index.save(3)  # pyright: ignore[reportArgumentType]
mlci.charlsen([["I50.9"]])  # pyright: ignore[reportAttributeAccessIssue]
mlci.build_cohort("mimic4", "folder", split_by=3)  # pyright: ignore[reportArgumentType]
