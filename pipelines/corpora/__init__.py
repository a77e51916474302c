"""Example data that any machine can create, one module per data set; ``data.example`` names it.

A module writes its raw files from what Python or a dependency brings: no network, the same bytes
everywhere. To add one: a module with the same function; the recipe's field finds it by its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Corpus:
    """Raw objects, ready to be uploaded."""

    files: Mapping[str, bytes]
    """Name below the input prefix → content. Each run gives the same bytes, so a second uploads
    nothing."""

    note: str
    """Remark for the printed line: how the data was created."""
