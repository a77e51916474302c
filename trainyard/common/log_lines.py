"""Beginnings of lines that the emulator writes into a job's log and ``why`` reads there."""

STANDS_IN = "This Python stands in for"
"""Names what this Python has of other versions than the image."""
