"""One self-contained HTML page about an index on a cohort: `build` computes and renders it."""

from mlci.showing.report.build import build

__all__ = ["build"]
