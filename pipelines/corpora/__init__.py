"""Example data that any machine can create, one module per data set; ``data.example`` names it.

A module writes its raw files from what Python or a dependency contains: without network, and with
the same bytes everywhere. To add a data set, add a module with a function ``build() -> Corpus``;
the recipe's field finds it by the module's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Corpus:
    """Raw objects, ready to be uploaded."""

    files: Mapping[str, bytes]
    """Mapping of each name below the input prefix to content. The bytes are always the same, so
    uploading again uploads nothing.
    """

    note: str
    """Remark for the printed line: how the data was created."""
