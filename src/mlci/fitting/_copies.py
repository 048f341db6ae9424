"""Augment the training data with copies of each admission as other hospitals would have recorded it.

The copies have codes cut to their category, short lists, or codes left out. A fit on all of them is more robust to
short lists and truncated codes elsewhere, and loses a little accuracy where it was fitted. Each form of copy gets a
token of its own, that is, an intercept. Without it, since a copy has the outcomes of the whole admission but fewer
codes, every further code would seem protective, the more so the longer a hospital's lists are. All copies of an
admission together have the weight of the admission. Needs NumPy alone.
"""

import numpy as np

from mlci.tokens import Tokens

KEPT = 0.6  # share of codes in the copy with random codes left out
FEW = 3  # codes in the copies with short lists
COUNT = 6  # forms of each admission, including the recorded one
MASS = np.array([1.0, *[1 / (COUNT - 1)] * (COUNT - 1)])  # weight of each form


def copies(tokens: Tokens, parents: np.ndarray, *, seed: int) -> Tokens:
    """Return six forms of every admission, all admissions in the first form, then all in the second, and so on.

    The first form is the admission as recorded. The others are: codes cut to their category; the first three codes;
    both; the first code alone; a random 60 % of the codes. The tokens of a code are adjacent, from its category to the
    whole code, so a token without a parent begins a code. A copy ends with the token of its form; these `COUNT - 1`
    tokens follow the tokens that `parents` covers.

    >>> form = copies(Tokens(np.array([2, 3, 4]), np.array([0, 3])), np.array([0, 0, 0, 2, 0]), seed=1)
    >>> [form.ids[a:b].tolist() for a, b in zip(form.offsets, form.offsets[1:])][:5]  # I50, I509 and N17
    [[2, 3, 4], [2, 4, 5], [2, 3, 4, 6], [2, 4, 7], [2, 3, 8]]
    """
    ids, counts = np.asarray(tokens.ids), tokens.counts
    first = parents[ids] == 0
    row = np.repeat(np.arange(len(tokens)), counts)
    code = np.cumsum(first) - 1  # of each token, numbered through
    before = np.concatenate([[0], np.cumsum(first)])[tokens.offsets[:-1]]  # codes of earlier admissions
    place = code - before[row]  # of the token's code in its admission
    drawn = np.random.default_rng([seed, 2]).random(int(first.sum()))[code] < KEPT
    kept = [np.ones(len(ids), bool), first, place < FEW, first & (place < FEW), place < 1, drawn]
    plain = np.concatenate([[0], *(np.bincount(row[form], minlength=len(tokens)) for form in kept)]).cumsum()
    marks = np.repeat(len(parents) + np.arange(COUNT - 1), len(tokens))
    copied = np.arange(len(tokens) + 1, len(plain))  # the ends of copies; the admissions themselves have no mark
    marked = np.insert(np.concatenate([ids[form] for form in kept]), plain[copied], marks.astype(ids.dtype))
    return Tokens(marked, plain + np.maximum(np.arange(len(plain)) - len(tokens), 0))
