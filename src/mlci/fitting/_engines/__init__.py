"""Engines: ways to compute a training step. Each has the interface of `_loop.Engine`.

- `single`: one model, by autograd or by the hand-written passes of `by_hand`; on the CPU, on a GPU, or shared by
  several processes.
- `stacked`: several models of one shape at once, for GPUs. `stacked_models` holds their weights, `layout` lays out the
  minibatches on the device, `stacked_adamw` is the optimiser, `kernels` holds Triton kernels.
- `perceptron`: one small network of dense layers on a GPU, for the collapse of the recipe `deep`.
"""
