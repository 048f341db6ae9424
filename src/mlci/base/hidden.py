"""Hide a library that a process does not need, so that other libraries do not import it on the way.

Only for a process of its own: a library that looked for the hidden one in vain may remember that.
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
    """Let everything be found again: for libraries that cannot bear it, such as torch.

    >>> hide("turtledemo")
    >>> reveal()
    >>> import turtledemo
    >>> turtledemo.__name__
    'turtledemo'
    """
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Hidden)]
