"""Starts of lines that the emulator writes into a job's log, and that ``why`` looks for there.

This is a separate module because the packages of the emulator and of ``why`` must not import each
other.
"""

STANDS_IN = "This Python stands in for"
"""Start of the line that lists packages of which this Python has other versions than the image."""
