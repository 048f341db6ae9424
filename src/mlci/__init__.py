"""A machine-learned comorbidity index: one severity score from diagnosis codes.

The names below are the public API. Each is imported on first use, so that `import mlci` and `mlci --help` are fast.
`__init__.pyi` declares the same names for type checkers.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOME = {
    "MLCI": "mlci.index.estimator",
    "load": "mlci.index.estimator",
    "Cohort": "mlci.cohort",
    "build_cohort": "mlci.cohort",
    "read_cohort": "mlci.cohort",
    "charlson": "mlci.codes.comorbidity",
    "elixhauser": "mlci.codes.comorbidity",
    "indices": "mlci.codes.comorbidity",
    "nhsic": "mlci.measures.alignment",
    "distance_correlation": "mlci.measures.alignment",
    "mutual_information": "mlci.measures.information",
    "evaluate": "mlci.judging.evaluate",
    "compare": "mlci.judging.compare",
    "InputError": "mlci.base.errors",
    "ShiftWarning": "mlci.index.shift",
}
_MODULES = {"plots": "mlci.showing.plots", "report": "mlci.showing.report", "spark": "mlci.spark"}
__all__ = sorted(_HOME | _MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'mlci' has no attribute '{name}'; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
