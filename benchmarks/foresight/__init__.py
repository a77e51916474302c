"""Foresight beside what was measured elsewhere, and beside our own strategies."""
