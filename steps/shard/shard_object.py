"""Unit of work that one process packs: a range of the records' hashes."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ShardObject:
    """A range of the records' hashes, and all records that fall into it."""

    name: str
    folder: str
    """First folder of its records; "" for any."""
    number: int
    count: int
    """Units of this folder; they share all hashes evenly."""
    slots: int
    """Parts in which it is packed, one after the other."""
    bytes: int
    """Average bytes of its content."""
    stem: str
    """16 hex digits with which the names of all its files begin."""
    corpus: str
    """SHA-256 that identifies the raw objects."""

    @property
    def identity(self) -> dict[str, Any]:
        """Return the identity that a progress record must have to count for this unit."""
        return {"unit": self.name, "slots": self.slots, "corpus": self.corpus}
