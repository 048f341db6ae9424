"""The slow, obvious formulas, straight from the paper: what the fast code must agree with."""
