"""Scores and outcomes in, tables out: nothing here knows which model made a score."""
