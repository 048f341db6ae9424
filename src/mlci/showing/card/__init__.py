"""An index as a card: a short list of code groups with integer points to add up, in the style of Charlson.

`make_card` computes it, `write` renders it: a page that adds up the points (.html), one or two pages for print (.pdf),
or only the points (.csv).
"""

from pathlib import Path

from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.showing.card._compute import Card, make_card

__all__ = ["Card", "check_name", "make_card", "write"]

FORMATS = (".html", ".pdf", ".csv")


def check_name(path: str | Path) -> str:
    """Return the format of a card by the ending of its file name; any other ending is an `InputError`.

    Args:
        path: the file to write.

    >>> check_name("card.PDF")
    '.pdf'
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise InputError(f"{path}: the name of a card must end in .html, .pdf or .csv.")
    return ending


def write(card: Card, path: str | Path) -> None:
    """Write a card.

    Args:
        card: as `make_card` returns it.
        path: a file whose name ends in .html, .pdf or .csv.

    >>> from tempfile import TemporaryDirectory
    >>> import mlci
    >>> card = make_card(mlci.load("us2010"), mlci.build_cohort("synthetic", 300, seed=1), size=5)
    >>> with TemporaryDirectory() as folder:
    ...     write(card, f"{folder}/card.csv")
    ...     print(Path(folder, "card.csv").read_text().splitlines()[0])
    version,category,title,points,admissions
    """
    kind = check_name(path)
    if kind == ".html":
        from mlci.showing.card._html import page

        content = page(card).encode()
    elif kind == ".pdf":
        from mlci.showing.card._pdf import draw

        content = draw(card)
    else:
        from mlci.showing.card._words import table

        content = table(card).to_csv(index=False).encode()
    with atomic(path) as temporary:
        temporary.write_bytes(content)
