"""Draw the figures of a comparison: for each model a funnel plot and a caterpillar plot, with text alternatives."""

from mlci.base.names import words
from mlci.judging.compare import Comparison
from mlci.showing import plots
from mlci.showing._pages import Album, Picture
from mlci.showing._words import some


def draw(found: Comparison) -> dict[str, list[Picture]]:
    """Return a funnel plot and a caterpillar plot for each model."""
    album = Album()
    for place, summary in enumerate(found.models.itertuples()):
        shown = found.of(summary.model)
        ranked = shown[shown["ranked"]]
        others = "" if len(ranked) == len(shown) else " Groups without a rank are not drawn."
        section = f"model{place}"
        if len(ranked):
            out = {word: ranked.loc[ranked["verdict"] == word, "group"].tolist() for word in ("high", "low")}
            outliers = "; ".join(f"{word}: {some(names)}" for word, names in out.items() if names)
            album.add(
                section,
                plots.funnel(ranked, found.limits(summary.model)),
                f"Funnel plot of {words(found.outcome)} by {words(found.by)}, adjusted by {summary.model}: "
                f"{len(ranked)} point{'s' * (len(ranked) != 1)}; beyond the 99.8% limits: {outliers or 'none'}.",
            )
            album.add(
                section,
                plots.caterpillar(ranked["group"].tolist(), ranked),
                f"Ratios with 95% intervals, from {ranked['ratio'].min():.2f} to {ranked['ratio'].max():.2f}; "
                f"diamonds are shrunken towards the mean of all groups.{others}",
            )
    return album.pictures
