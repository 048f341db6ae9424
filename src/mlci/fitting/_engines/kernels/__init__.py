"""GPU kernels for what torch does in many small ones.

Tensors come in, tensors go out, equal to their torch counterparts in `stacks`, `stacked_adamw` and `_objectives` within
rounding. A step of stacked fits is mostly launching kernels. Triton comes with torch for CUDA; where it is missing,
fits are made one by one.
"""

from mlci.fitting._engines.kernels.alignments import StackedAlignments
from mlci.fitting._engines.kernels.layers import layer, layer_back
from mlci.fitting._engines.kernels.moves import adamw, bring, move, settle
from mlci.fitting._engines.kernels.pooling import Pool

__all__ = ["Pool", "StackedAlignments", "adamw", "bring", "layer", "layer_back", "move", "settle"]
