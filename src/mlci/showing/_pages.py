"""What self-contained pages share: pictures with their words, one style, one set of filters; no script, no network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mlci.base.names import cell, label
from mlci.showing._colours import dark_style
from mlci.showing._words import listing, number, percent, rounded, signed, spread, versions

if TYPE_CHECKING:
    from mlci.showing.plots import Figure  # imports matplotlib, which a page drawn by another process does without


@dataclass(frozen=True)
class Picture:
    """A drawing with its text alternative, ready for the page."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Sketch:
    """A picture that is to be drawn: the name of a function of `mlci.showing.plots`, and what it is given."""

    section: str
    said: str  # its text alternative
    plot: str
    given: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    caption: bool = True  # whether the alternative stands below it, too


class Album:
    """Pictures by section, in the order they were drawn."""

    def __init__(self) -> None:
        self.pictures: dict[str, list[Picture]] = {}

    def add(self, section: str, figure: "Figure", said: str, *, caption: bool = True) -> None:
        from mlci.showing.plots import svg

        shown = self.pictures.setdefault(section, [])
        drawn = svg(figure, prefix=f"{section}{len(shown)}", alternative=said)
        shown.append(Picture(drawn, said if caption else ""))

    def draw(self, sketch: Sketch) -> None:
        from mlci.showing import plots

        figure = getattr(plots, sketch.plot)(*sketch.given, **sketch.options)
        self.add(sketch.section, figure, sketch.said, caption=sketch.caption)


@cache
def environment(package: str):
    """Return templates of a package of `mlci.showing`, such as `report`, with the filters and style of all pages."""
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
        "cell": cell,
        "number": number,
        "rounded": rounded,
        "signed": signed,
        "versions": versions,
    }
    style = files("mlci.showing").joinpath("style.css").read_text()
    made.globals |= {"style": style.replace("/* dark figures */", dark_style()), "spread": spread}
    return made
