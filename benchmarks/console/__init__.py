"""Measure what the console costs."""
