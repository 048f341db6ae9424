"""A property that is computed once for each object; threads that ask different objects do not wait for each other.

`functools.cached_property` of Python 3.11 holds one lock for all objects of a class. Two threads that ask one object at
the same time both compute here, and either answer is kept.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as lazy_property
else:

    class lazy_property:
        """Compute a property when it is first asked for, and keep it.

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
