"""What is kept of a fit: the estimator, its model file, and a scorer that needs no torch."""
