"""What all figures share: colours, panels, and output as SVG or a file."""

import re
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mlci.base.files import atomic
from mlci.base.names import label
from mlci.judging.curves import Rates
from mlci.showing._colours import BLUE, DARK, GREEN, ORANGE, PURPLE, SKY, VERMILION

Words = ParamSpec("Words")
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKS = ("o", "s", "D", "^", "v", "P")
INK = "#0a0b0c"  # placeholder for the text colour of the page
CHARACTER, WIDE = 0.08, 0.096  # inches of a title's character, on average and at most
LONGEST = 46  # characters of a name next to a bar
POINTS = 400  # a line on paper shows no more
TICKS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)  # of a normal scale
COUNT = FuncFormatter(lambda value, _: f"{value:,.6g}".replace("-", "−"))
PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.6g}%")

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # no axis has labels above that it would have to give way to, so none are measured
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlecolor": INK,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a hospital may have a dollar sign in its name
    "svg.hashsalt": "mlci",
}


def styled(draw: Callable[Words, Figure]) -> Callable[Words, Figure]:
    """Draw in the style of this package, whatever the user's matplotlib settings."""

    @wraps(draw)
    def wrapper(*args: Words.args, **options: Words.kwargs) -> Figure:
        with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **STYLE}):
            return draw(*args, **options)

    return wrapper


def panel(size: tuple[float, float] = (3.6, 2.5), *, left: float = 0.68, right: float = 0.1):
    """Return a figure with one panel and fixed margins (inches), which needs no layout engine."""
    figure = Figure(figsize=size)
    width, height = size
    box = (left / width, 0.48 / height, (width - left - right) / width, (height - 0.48 - 0.3) / height)
    return figure, figure.add_axes(box)


def heading(name: str, inches: float = 2.9) -> str:
    """Return the label of an outcome as the title of a panel, shortened to its width instead of cut off.

    >>> heading("mortality"), heading("readmission_within_ninety_days_of_discharge", 2.0)
    ('In-hospital mortality', 'Readmission within…')
    """
    text = label(name)
    return text if len(text) * CHARACTER <= inches else text[: int(inches / WIDE) - 1].rstrip() + "…"


def room(names: Sequence[str]) -> float:
    """Return the width in inches of small tick labels to the left of a panel."""
    return 0.2 + 0.062 * max(map(len, names), default=0)


def panels(count: int, *, columns: int = 2, size: tuple[float, float] = (3.6, 2.5)):
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def points_of(axis, x: np.ndarray, rates: Rates, **style) -> None:
    spread = np.abs([rates.risk - rates.low, rates.high - rates.risk])
    axis.errorbar(x, rates.risk, yerr=spread, fmt="o", color=BLUE, **style)


def svg(figure: Figure, *, prefix: str, alternative: str) -> str:
    """Return a figure as inline SVG that uses the text colour of the page.

    Args:
        figure: the figure.
        prefix: makes its ids unique on the page.
        alternative: the text alternative, for readers who do not see the figure.

    >>> from mlci.showing.plots import singular_values
    >>> svg(singular_values([3.0, 1.0]), prefix="shares", alternative="Two bars")[:4]
    '<svg'
    """
    from html import escape

    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's browser has its own fonts
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", text).replace(INK, "currentColor")
    text = re.sub(r"font: (\d[\d.]*px) [^;\"]*", r"font-size: \1; font-family: inherit", text)
    text = re.sub(r"font: (\w+) (\d[\d.]*px) [^;\"]*", r"font-weight: \1; font-size: \2; font-family: inherit", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)  # as matplotlib 3.11 writes it
    for colour in DARK:  # the page says whether it is dark
        text = re.sub(rf"(stroke|fill): {colour.lower()}", rf"\1: var(--{colour[1:]}, {colour})", text)
    text = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\d+\.\d{2})\d+", r"\1", tag[0]), text)  # coordinates, not texts
    aria_label = escape(alternative, quote=True)
    attributes = f'role="img" aria-label="{aria_label}"'
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', lambda _: attributes, text, count=1)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure on a white background, without a date.

    Args:
        figure: the figure.
        path: the file; its ending chooses the format: svg, pdf or png.

    >>> from tempfile import TemporaryDirectory
    >>> from mlci.showing.plots import singular_values
    >>> with TemporaryDirectory() as folder:
    ...     save(singular_values([3.0, 1.0]), f"{folder}/shares.svg")
    ...     print([file.name for file in Path(folder).iterdir()])
    ['shares.svg']
    """
    ending = Path(path).suffix.lstrip(".")
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
    with mpl.rc_context(STYLE), atomic(path) as temporary:
        figure.savefig(temporary, format=ending, facecolor="white", dpi=200, metadata=undated)
