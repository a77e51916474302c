"""Tests of moto that the emulator rightly fails: AWS itself would not answer what they expect."""

ARGUED: dict[str, str] = {}
"""``file.py::test``, with or without ``[parameters]`` → the reason."""
