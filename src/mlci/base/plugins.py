"""Load sources and models of other packages, which register entry points in their `pyproject.toml`.

[project.entry-points."mlci.sources"]
ward = "wardpackage.source"            # a module with `read`, as those of mlci.sources

[project.entry-points."mlci.models"]
ward = "wardpackage.baselines"         # a module with MODELS, as those of mlci.benchmark.models
"""

from importlib.metadata import entry_points
from types import ModuleType

from mlci.base.errors import InputError


def plugins(group: str) -> dict[str, ModuleType]:
    """Load the modules that installed packages register under a group.

    Args:
        group: `mlci.sources` or `mlci.models`.

    Returns:
        The modules by name. A module that cannot be loaded raises an `InputError`.

    >>> plugins("mlci.nothing")
    {}
    """
    found = {}
    for point in entry_points(group=group):
        try:
            found[point.name] = point.load()
        except Exception as error:  # an import runs other people's code, which may raise anything
            raise InputError(
                f"{group}: {point.name} ({point.value}) cannot be loaded ({type(error).__name__})."
            ) from error
    return found
