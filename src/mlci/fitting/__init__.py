"""Fitting: a cohort's tokens and outcomes in, weights out. A file per recipe; what they share begins with _.

`Split` is loaded when it is first used: scoring takes files of this room that know nothing of training.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlci.fitting._data import Split as Split


def __getattr__(name: str) -> Any:
    if name != "Split":
        raise AttributeError(f"module 'mlci.fitting' has no attribute '{name}'")
    from mlci.fitting._data import Split

    return Split
