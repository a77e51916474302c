"""The samples are those of toys.ragged."""

from toys.ragged.packing import Packing

__all__ = ["Packing"]
