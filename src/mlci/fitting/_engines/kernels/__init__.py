"""GPU kernels for what torch does in many small ones.

Tensors come in, tensors go out, equal to their torch counterparts in `stacks`, `stacked` and `_objectives` within
rounding. A step of stacked fits is mostly launching kernels. Triton comes with torch for CUDA; where it is missing,
fits are made one by one.
"""

from mlci.fitting._engines.kernels.alignments import StackedAlignments
from mlci.fitting._engines.kernels.layers import activate, deactivate
from mlci.fitting._engines.kernels.moves import adamw
from mlci.fitting._engines.kernels.pooling import Pool

__all__ = ["Pool", "StackedAlignments", "activate", "adamw", "deactivate"]
