"""The fitted index: the estimator, its model file, and scorers that need no torch."""
