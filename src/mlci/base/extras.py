"""Check optional dependencies; an error names the missing one and the command that installs it.

`pip install mlci` installs what scoring, indices, measures, the `table` recipe and the report need. Networks, servers
and spreadsheets need extras. Code that uses an extra calls `need` before it imports.
"""

from importlib.util import find_spec

from mlci.base.errors import InputError

EXTRAS = {  # extra -> modules that must be importable
    "deep": ("torch",),
    "excel": ("python_calamine", "xlsxwriter"),
    "postgres": ("psycopg",),
    "spark": ("pyspark",),
    "trees": ("lightgbm",),
    "web": ("fastapi", "python_multipart", "uvicorn"),
}


def missing(extra: str) -> str:
    """Return the first module of an extra that is not installed, or an empty text.

    >>> missing("web") in ("", "fastapi", "python_multipart", "uvicorn")
    True
    """
    return next((module for module in EXTRAS[extra] if find_spec(module) is None), "")


def need(extra: str, *, to: str) -> None:
    """Raise an error if an extra is not installed.

    `to` completes the sentence: what the extra is needed for.

    >>> need("deep", to="fit a network") if not missing("deep") else None
    """
    module = missing(extra)
    if module:
        raise InputError(f"to {to}, {module} is needed and not installed; run: pip install 'mlci[{extra}]'")
