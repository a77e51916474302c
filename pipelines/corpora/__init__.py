"""Example data that every machine can make for itself, one module each; ``data.example`` names it.

A module has ``build() -> Corpus``.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Corpus:
    """Raw objects, ready to be uploaded."""

    files: Mapping[str, bytes]
    """Name below the input prefix → content. The same on every run, so a second finds all there."""

    note: str
    """What people should know of how it was made, for the printed line."""
