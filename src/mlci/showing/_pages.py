"""What self-contained pages share: pictures with their words, one style, one set of filters; no script, no network."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from mlci.base.names import cell, label
from mlci.showing import plots
from mlci.showing._words import listing, number, percent, signed, spread, versions


@dataclass(frozen=True)
class Picture:
    """A drawing with its text alternative, ready for the page."""

    svg: str
    caption: str


class Album:
    """Pictures by section, in the order they were drawn."""

    def __init__(self) -> None:
        self.pictures: dict[str, list[Picture]] = {}

    def add(self, section: str, figure: plots.Figure, said: str, *, caption: bool = True) -> None:
        shown = self.pictures.setdefault(section, [])
        drawn = plots.svg(figure, prefix=f"{section}{len(shown)}", alternative=said)
        shown.append(Picture(drawn, said if caption else ""))


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
        "signed": signed,
        "versions": versions,
    }
    style = files("mlci.showing").joinpath("style.css").read_text()
    made.globals |= {"style": style.replace("/* dark figures */", plots.dark_style()), "spread": spread}
    return made
