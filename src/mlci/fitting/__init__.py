"""Fitting: turn a cohort's tokens and outcomes into the weights of an index.

There is one module per recipe. Each has a function `fit_splits(splits, ...)` that returns a `Fit` (`_result`): the
weights, and a record of how the fit went.

- `table`: penalised regressions; an index that is a table of weights. Needs NumPy and SciPy alone.
- `deep`: an ensemble of networks learns the risks; they are collapsed to one score, which one network then learns.
- `paper`: the paper's recipe: one network trained by normalised HSIC in two stages.
- `move`: adapts the weights of a `table` model to another hospital (`mlci recalibrate --update weights`).

What the recipes share is in modules for `mlci` alone. A good order to read them in:

- Data: `_data` (splits and folds), `_mapped` (cohorts larger than memory), `_numbers` (outcomes that are numbers),
  `_weighting` (checks, and the outcome weights of the paper), `_soft_labels`.
- The run: `_events` (progress), `_checkpoint` (resuming), `_processes` (several processes), `_result`.
- For `table`: `_presence` (the token matrix), `_families`, `_ridge` (the solver), `_penalties` (cross-validation),
  `_calibrate`, `_curves`, `_people` (age and sex), `_copies` (augmentation); for `move` also `_blend`.
- For the networks: `encoders` (the models), `_objectives` (losses with their gradients), `_loop` (the training loop),
  `_engines` (how a step is computed: one model, several at once, on a GPU), `_adamw`, `_pooling`, `_backward`,
  `_waking`.
- For `deep`: `_context`, `_ensemble`, `_collapse`, `_heads`, in the order of its steps.

Conventions: an unknown outcome is NaN. A prediction for an admission is *out of fold* if its model was trained without
the fold of that admission's patient. Formulas are those of the paper (cited by section), or are derived where they are
used.

`Split` is loaded lazily, because scoring imports modules of this subpackage that need nothing of training.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlci.fitting._data import Split as Split


def __getattr__(name: str) -> Any:
    if name != "Split":
        raise AttributeError(f"module 'mlci.fitting' has no attribute '{name}'")
    from mlci.fitting._data import Split

    return Split
