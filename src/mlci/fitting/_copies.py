"""Admissions as other hospitals would have recorded them: codes cut to their category, short lists, codes left out.

In come the tokens of a split and which beginning each token has, out come the tokens of copies. A fit that learns from
all of them stands up to short lists and truncated codes elsewhere, and gives away a little where it was fitted. Each
form has a token of its own, a level that its copies share: they have the outcomes of the whole admission with fewer
codes, and without it every further code would seem to do good, the more the longer a hospital's lists are. All copies
of an admission together count as much as the admission. Needs NumPy alone.
"""

import numpy as np

from mlci.tokens import Tokens

KEPT = 0.6  # of the codes, in the copy that leaves some out at random
FEW = 3  # codes, in the copies of short lists
COUNT = 6
MASS = np.array([1.0, *[1 / (COUNT - 1)] * (COUNT - 1)])  # how much each form counts


def copies(tokens: Tokens, parents: np.ndarray, *, seed: int) -> Tokens:
    """Lay six forms of every admission one after the other, the first as it is.

    The others: codes cut to their category, the first three codes, both, the first code alone, a random 60 % of the
    codes. A code's tokens stand together, from its category to the whole code: a token without parent begins one. A
    copy ends with the token of its form; these `COUNT - 1` tokens follow those that `parents` knows.

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
