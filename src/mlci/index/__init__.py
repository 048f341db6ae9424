"""What is kept of a fit: the estimator, its model file, and the scorer that needs NumPy alone."""
