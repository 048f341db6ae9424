"""Hide a library that a process does not need, so that other libraries do not import it.

For separate processes only: a library that did not find the hidden one may remember this.
"""

import sys
from importlib.machinery import ModuleSpec


class _Hidden:
    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == self.name:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)
        return None


def hide(name: str) -> None:
    """Make Python unable to find the module `name`, unless it is imported already.

    >>> hide("turtledemo")
    >>> import turtledemo
    Traceback (most recent call last):
    ModuleNotFoundError: turtledemo is not needed here
    >>> reveal()
    """
    sys.meta_path.insert(0, _Hidden(name))


def reveal() -> None:
    """Make everything importable again, for libraries that fail otherwise, such as torch.

    >>> hide("turtledemo")
    >>> reveal()
    >>> import turtledemo
    >>> turtledemo.__name__
    'turtledemo'
    """
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Hidden)]
