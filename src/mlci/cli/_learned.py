"""Scores of indices that are learned, for commands that compare an index of some codes with itself of others."""


def learned(seed: int):
    """Learn an index by the recipe `table` from the training admissions; score them and the judged ones with it."""

    def scores(train, judged):
        from mlci.index.estimator import MLCI

        index = MLCI(recipe="table", seed=seed).fit(train)
        return index.score(train), index.score(judged)

    return scores


def given(path: str):
    """Score by a model file, as it stands."""

    def scores(train, judged):
        from mlci.index.model import load_model

        model = load_model(path)
        return tuple(model.score(model.of_cohort(part).admissions()) for part in (train, judged))

    return scores
