"""Templates and the formats of their numbers: a view in, a page out."""

from collections.abc import Callable
from datetime import date

from jinja2 import Environment, PackageLoader, StrictUndefined

import mlci
from mlci.base.names import cell, label, words
from mlci.index.estimator import MLCI
from mlci.index.provenance import provenance
from mlci.showing._words import place
from mlci.web._drawing import Drawing
from mlci.web._uploads import without_options


def renderer(index: MLCI, name: str):
    environment = Environment(
        loader=PackageLoader("mlci.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "label": label,
        "words": words,
        "percent": percent,
        "span": span,
        "signed": signed,
        "number": number,
        "count": lambda value: f"{value:,}",
        "place": place,
        "cell": cell,
        "told": told,
    }
    rendered: dict[tuple[object, ...], str] = {}

    def remembered(*key: object, caller: Callable[[], str]) -> str:
        """Render a part of a template once for each key; it must depend only on the model and the key."""
        if key not in rendered:
            rendered[key] = caller()
        return rendered[key]

    environment.globals |= {
        "remembered": remembered,
        "mlci_version": mlci.__version__,
        "model": index.model_,
        "model_name": name or f"recipe {index.model_.card['recipe']}",
        "origin": provenance(index.model_),
        "drawing": Drawing(index.model_),
        "today": lambda: date.today().isoformat(),
    }

    def render(template: str, **view: object) -> str:
        return environment.get_template(f"{template}.html.j2").render(view)

    return render


def told(warning: str) -> str:
    """Return a warning of the command line as a sentence of the page.

    >>> told("5 codes lack a leading zero (--restore-zeros restores it); see `mlci score`.")
    '5 codes lack a leading zero; see mlci score.'
    """
    return without_options(f"{warning[:1].upper()}{warning[1:]}")


def number(value: float, digits: int = 2) -> str:
    """Return a number with `digits` decimals.

    >>> number(-0.336), number(-0.001)
    ('−0.34', '0.00')
    """
    return f"{value:z.{digits}f}".replace("-", "−")


def signed(value: float) -> str:
    """Return a change with its sign.

    >>> signed(0.336), signed(-0.336)
    ('+0.34', '−0.34')
    """
    return f"{value:+z.2f}".replace("-", "−")


def percent(risk: float) -> str:
    """Return a `risk` as text with a sensible number of digits; never 0 or 100%.

    >>> percent(0.0004), percent(0.123), percent(0.9999)
    ('under 0.1%', '12.3%', 'over 99.9%')
    """
    if risk < 0.001:
        return "under 0.1%"
    return "over 99.9%" if risk > 0.999 else f"{100 * risk:.1f}%"


def span(bounds: tuple[float, float]) -> str:
    """Return an interval of risks, given by its two `bounds`.

    >>> span((0.02, 0.045))
    '2.0 to 4.5%'
    """
    low, high = (percent(bound) for bound in bounds)
    return low if low == high else f"{low.removesuffix('%')} to {high}"
