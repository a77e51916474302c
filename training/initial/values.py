"""What a tensor begins with: a part of it can be asked for, whatever the sharding."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from training.initial.parts import Part


class Value(Protocol):
    """The value of one tensor."""

    def write(self, part: Part, into: Tensor) -> None:
        """Write ``part`` of it ``into`` a tensor of the part's shape, on any device."""


@dataclass(frozen=True)
class Known:
    """A tensor that is there already."""

    tensor: Tensor

    def write(self, part: Part, into: Tensor) -> None:
        into.copy_(self.tensor[part] if part else self.tensor)
