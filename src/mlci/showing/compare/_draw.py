"""Draw the pictures of a comparison: for each model a funnel and a caterpillar, each with its words."""

from mlci.base.names import words
from mlci.judging.compare import TOO_FEW, Comparison
from mlci.showing import plots
from mlci.showing._pages import Album, Picture


def draw(found: Comparison) -> dict[str, list[Picture]]:
    """Return model → pictures: a funnel, a caterpillar."""
    album = Album()
    for place, summary in enumerate(found.models.itertuples()):
        shown = found.of(summary.model)
        shown = shown[shown["ratio"].notna()]
        ranked = shown[shown["verdict"] != TOO_FEW]
        section = f"model{place}"
        if len(ranked):
            out = {word: ranked.loc[ranked["verdict"] == word, "group"].tolist() for word in ("high", "low")}
            told = "; ".join(f"{word}: {', '.join(map(str, names))}" for word, names in out.items() if names)
            album.add(
                section,
                plots.funnel(shown, found.limits(summary.model)),
                f"Funnel plot of {words(found.outcome)} by {words(found.by)} ({summary.model}): {len(ranked)} points; "
                f"beyond the 99.8% limits, {told or 'none'}.",
            )
            album.add(
                section,
                plots.caterpillar(shown["group"].tolist(), shown),
                f"Ratios with 95% intervals, from {ranked['ratio'].min():.2f} to {ranked['ratio'].max():.2f}; "
                "diamonds are drawn towards the mean of all by their precision.",
            )
    return album.pictures
