"""Scores of learned indices, for commands that compare an index made of some codes with the same one made of others."""


def learned(seed: int):
    """Learn an index by the recipe `table` from the training admissions; score them and the judged ones with it."""

    def scores(train, judged):
        from mlci.index.estimator import MLCI

        return _scored(MLCI(recipe="table", seed=seed).fit(train).model_, train, judged)

    return scores


def given(path: str):
    """Score by a model file, as it stands."""

    def scores(train, judged):
        from mlci.index.model import load_model

        return _scored(load_model(path), train, judged)

    return scores


def _scored(model, *cohorts):
    """Return the scores of cohorts, without a warning that one part of a cohort differs from another."""
    return tuple(model.score(model.taken(cohort)) for cohort in cohorts)
