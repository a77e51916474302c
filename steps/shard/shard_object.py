"""What is packed by one process: a range of the records' hashes."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ShardObject:
    """A range of the records' hashes, and of all records those that fall into it."""

    name: str
    folder: str
    """First folder that its records lay in; "" for any."""
    number: int
    count: int
    """Units of this folder; they share all hashes evenly."""
    slots: int
    """Parts in which it is packed, one after the other."""
    bytes: int
    """How many bytes its content has, on average."""
    stem: str
    """16 hex digits; the names of all that it becomes begin so."""
    corpus: str
    """SHA-256 over what tells that the raw objects are the same."""

    @property
    def identity(self) -> dict[str, Any]:
        """What a record must have been made of to count for it now."""
        return {"unit": self.name, "slots": self.slots, "corpus": self.corpus}
