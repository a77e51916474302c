"""Compare runs: their differences in settings, code and data."""
