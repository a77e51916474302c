"""Beginnings of lines that the emulator writes into a job's log and ``why`` reads there.

Apart: neither room may import the other.
"""

STANDS_IN = "This Python stands in for"
"""Names what this Python has of other versions than the image."""
