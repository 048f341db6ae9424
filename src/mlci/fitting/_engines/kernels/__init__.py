"""Triton kernels that replace many small kernels of torch.

A step of stacked models is mostly kernel launches, so fewer and larger kernels are faster. Each function equals its
torch counterpart in `stacked_models`, `stacked_adamw` or `_objectives` up to rounding. Triton comes with torch for
CUDA; without it, models are trained one by one. The kernels' own documentation is in their Python wrappers.
"""

from mlci.fitting._engines.kernels.alignments import StackedAlignments
from mlci.fitting._engines.kernels.layers import layer, layer_back
from mlci.fitting._engines.kernels.optimiser import adamw, catch_up, catch_up_all, update_rows
from mlci.fitting._engines.kernels.pooling import Pool

__all__ = ["Pool", "StackedAlignments", "adamw", "catch_up", "catch_up_all", "layer", "layer_back", "update_rows"]
