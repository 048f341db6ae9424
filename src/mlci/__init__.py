"""A machine-learned comorbidity index: diagnosis codes in, one severity number out.

The names below are the public surface. Each is loaded when it is first used, so that `import mlci` and `mlci --help`
cost nothing.
"""

from importlib import import_module

__version__ = "0.2.0"

_HOME = {
    "MLCI": "mlci.index.estimator",
    "load": "mlci.index.estimator",
    "Cohort": "mlci.cohort",
    "build_cohort": "mlci.cohort",
    "read_cohort": "mlci.cohort",
    "charlson": "mlci.codes.comorbidity",
    "elixhauser": "mlci.codes.comorbidity",
    "nhsic": "mlci.measures.alignment",
    "distance_correlation": "mlci.measures.alignment",
    "mutual_information": "mlci.measures.information",
    "InputError": "mlci.base.errors",
}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'mlci' has no attribute '{name}'; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
