"""Measure Trainyard; each benchmark runs with ``python -m``."""
