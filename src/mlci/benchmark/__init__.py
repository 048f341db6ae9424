"""Compare models: the models, their runs on a cohort, and the paper's tables."""
