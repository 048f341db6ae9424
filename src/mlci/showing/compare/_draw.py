"""Draw the pictures of a comparison: for each model a funnel and a caterpillar, each with its words."""

import numpy as np
import pandas as pd

from mlci.base.names import words
from mlci.judging.compare import ALARM, ALERT, TOO_FEW, Comparison
from mlci.measures.ratios import Dispersion, funnel
from mlci.showing import plots
from mlci.showing._pages import Album, Picture

POINTS = 120  # of a limit's line


def draw(found: Comparison) -> dict[str, list[Picture]]:
    """Model → pictures: a funnel, a caterpillar."""
    album = Album()
    for place, summary in enumerate(found.models.itertuples()):
        shown = found.of(summary.model)
        shown = shown[shown["ratio"].notna()]
        ranked = shown[shown["verdict"] != TOO_FEW]
        section = f"model{place}"
        if len(ranked):
            out = {word: ranked.loc[ranked["verdict"] == word, "group"].tolist() for word in ("high", "low")}
            told = "; ".join(f"{word}: {', '.join(map(str, names))}" for word, names in out.items() if names)
            spread = Dispersion(found.overdispersion, summary.phi, summary.tau2)
            album.add(
                section,
                plots.funnel(ranked, limits(ranked["effective"], spread)),
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


def limits(effective: pd.Series, spread: Dispersion) -> pd.DataFrame:
    """Lines of the funnel over the expected events of these groups, with the exact ones beside where they differ."""
    grid = np.geomspace(0.9 * effective.min(), 1.1 * effective.max(), POINTS)
    lines = {"effective": grid}
    for level, name in ((ALERT, "95"), (ALARM, "998")):
        lines[f"low{name}"], lines[f"high{name}"] = funnel(grid, spread, level=level)
        if spread.found:
            lines[f"exact_low{name}"], lines[f"exact_high{name}"] = funnel(grid, Dispersion("none", 1, 0), level=level)
    return pd.DataFrame(lines)
