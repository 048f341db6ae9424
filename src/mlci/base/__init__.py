"""Shared basics: errors for users, files that appear completely or not at all, names of outcomes."""
