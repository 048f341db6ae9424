"""A cohort in, weights out: one module for each recipe, and below them what the recipes share."""
