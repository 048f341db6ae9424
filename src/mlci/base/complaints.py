"""Turn pydantic's validation errors into one sentence: what is wrong, where, and what is allowed.

The sentence has no full stop; the caller adds the name of the file or request. The refused value is repeated only if
the caller allows it, because it may be a patient's.
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mlci.base.errors import name_of

UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def complaint(
    errors: Sequence[Mapping[str, Any]],
    *,
    whole: str = "the whole",
    allowed: Callable[[Sequence[str]], Iterable[str]] | None = None,
    repeat: bool = False,
) -> str:
    """Return the first error in words.

    Args:
        errors: the result of `ValidationError.errors()`.
        whole: the name of the place if the error names no key.
        allowed: returns the allowed keys of the section with a path, for messages on unknown keys.
        repeat: whether to repeat the value that was refused.

    >>> complaint([{"type": "missing", "loc": ("codes",), "msg": "Field required"}])
    'codes is missing; it is needed'
    >>> wrong = {"type": "int_type", "loc": ("fit", "seed"), "msg": "Input should be a valid integer", "input": "x"}
    >>> complaint([wrong], repeat=True)
    "fit.seed: input should be a valid integer (it is 'x')"
    >>> complaint([{"type": "extra_forbidden", "loc": ("fit", "sead"), "msg": ""}], allowed=lambda path: ["seed"])
    'fit.sead is not a known key; allowed are seed'
    """
    first = errors[0]
    path = [str(part) for part in first["loc"]]
    place = name_of(".".join(path))[:80] or whole
    if first["type"] in UNKNOWN and allowed is not None:
        return f"{place} is not a known key; allowed are {', '.join(allowed(path[:-1]))}"
    if first["type"] == "missing":
        return f"{place} is missing; it is needed"
    problem = first["msg"].removeprefix("Value error, ").rstrip(".")[:200]
    found = f"{place}: {problem[:1].lower()}{problem[1:]}"
    return f"{found} (it is {reprlib.repr(first['input'])})" if repeat else found
