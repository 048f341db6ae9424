"""Ways to train encoders. Each engine answers the three questions of `_loop.Engine`: train an epoch, predict, hand over
the weights. `single` trains one model, by autograd or by the passes of `by_hand`; `stacked` trains several of one shape
at once, on a GPU with the Triton kernels of `kernels`.
"""
