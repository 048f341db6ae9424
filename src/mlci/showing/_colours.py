"""The colours of all figures, by Okabe and Ito, and their lighter ones on a dark page."""

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
GREY = "#7B8794"
DARK = {BLUE: "#56B4E9", VERMILION: "#FF8A4C", GREEN: "#2FC99B", GREY: "#9AA4AE"}  # lighter, where the page is dark


def dark_style() -> str:
    """Return the colours of figures on a dark page, as CSS declarations.

    >>> dark_style().split(";")[0]
    '--0072B2: #56B4E9'
    """
    return " ".join(f"--{colour[1:]}: {lighter};" for colour, lighter in DARK.items())
