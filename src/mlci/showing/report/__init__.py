"""One self-contained HTML page about an index on a cohort: `build` computes and renders it."""

from mlci.showing.report._build import build

__all__ = ["build"]
