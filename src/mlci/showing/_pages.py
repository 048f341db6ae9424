"""What self-contained pages share: figures with text alternatives, one style, one set of filters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mlci.base.names import cell, label, listing, words
from mlci.showing._colours import dark_style
from mlci.showing._words import number, percent, rounded, signed, spread, versions

if TYPE_CHECKING:
    from mlci.showing.plots import Figure  # imports matplotlib, which is not needed if another process draws


@dataclass(frozen=True)
class Picture:
    """A drawing with its text alternative, ready for the page."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Sketch:
    """A figure to be drawn: the name of a function of `mlci.showing.plots`, and its arguments."""

    section: str
    alternative: str  # text alternative
    plot: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    caption: bool = True  # whether to show the alternative as a caption


class Album:
    """Pictures by section, in the order in which they were drawn."""

    def __init__(self) -> None:
        self.pictures: dict[str, list[Picture]] = {}

    def add(self, section: str, figure: "Figure", alternative: str, *, caption: bool = True) -> None:
        from mlci.showing.plots import svg

        pictures = self.pictures.setdefault(section, [])
        drawn = svg(figure, prefix=f"{section}{len(pictures)}", alternative=alternative)
        pictures.append(Picture(drawn, alternative if caption else ""))

    def draw(self, sketch: Sketch) -> None:
        from mlci.showing import plots

        figure = getattr(plots, sketch.plot)(*sketch.arguments, **sketch.options)
        self.add(sketch.section, figure, sketch.alternative, caption=sketch.caption)


def style() -> str:
    """Return the style sheet of all pages, with the colours of figures on a dark page."""
    return files("mlci.showing").joinpath("style.css").read_text("utf-8").replace("/* dark figures */", dark_style())


@cache
def environment(package: str):
    """Return the templates of a package of `mlci.showing`, such as `report`, with filters and style of all pages."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=PackageLoader(f"mlci.showing.{package}", "."),
        autoescape=select_autoescape(["html", "j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percent": percent,
        "listing": listing,
        "label": label,
        "words": words,
        "cell": cell,
        "number": number,
        "rounded": rounded,
        "signed": signed,
        "versions": versions,
    }
    made.globals |= {"style": style(), "spread": spread}
    return made
