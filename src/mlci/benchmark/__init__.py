"""Models beside one another: the models, their runs on a cohort, and the tables of the paper."""
