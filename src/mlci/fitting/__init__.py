"""Fitting: a cohort's tokens and outcomes in, weights out. A file per recipe; what they share begins with _."""

from mlci.fitting._data import Split as Split
