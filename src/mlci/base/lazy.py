"""A cached property without a lock.

`functools.cached_property` of Python 3.11 holds one lock for all objects of a class, so that threads with different
objects wait for each other. Here, two threads that read the property of the same object at the same time both compute
it, and one of the results is kept.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as lazy_property
else:

    class lazy_property:
        """Compute a property when it is first read, and keep it.

        >>> class Sum:
        ...     @lazy_property
        ...     def value(self):
        ...         print("computed")
        ...         return 3
        >>> found = Sum()
        >>> found.value + found.value
        computed
        6
        """

        def __init__(self, function: Any) -> None:
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, found: Any, owner: type | None = None) -> Any:
            if found is None:
                return self
            value = found.__dict__[self.name] = self.function(found)
            return value
