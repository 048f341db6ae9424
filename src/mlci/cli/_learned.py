"""Scores of learned indices, for commands that compare the same index on different sets of codes."""


def learned(seed: int):
    """Return a function that learns an index by the recipe `table` from training admissions and scores with it."""

    def scores(train, judged):
        from mlci.index.estimator import MLCI

        return _scored(MLCI(recipe="table", seed=seed).fit(train).model_, train, judged)

    return scores


def given(path: str):
    """Return a function that scores with a model file as it is."""

    def scores(train, judged):
        from mlci.index.model import load_model

        return _scored(load_model(path), train, judged)

    return scores


def _scored(model, *cohorts):
    """Return the scores of cohorts, without warnings that one part of a cohort differs from another."""
    return tuple(model.score(model.as_admissions(cohort)) for cohort in cohorts)
