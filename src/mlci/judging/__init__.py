"""Evaluate scores against outcomes: turn them into tables, whichever model the scores come from."""
