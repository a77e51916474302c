"""What a tensor begins with: a part of it can be asked for, whatever the sharding."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
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


DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}
"""Types by safetensors' names for them (https://huggingface.co/docs/safetensors, "Format")."""

AT_ONCE = 2**20
"""Elements that are read of a file at once, unless a row has more."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a safetensors file, of which only the part that is asked for is read: some rows
    after the other, since what is read is in memory twice."""

    path: Path
    name: str

    def write(self, part: Part, into: Tensor) -> None:
        if not into.numel():
            return
        with safe_open(self.path, framework="pt") as file:
            if not part:
                into.copy_(file.get_tensor(self.name))
                return
            there, (rows, *columns) = file.get_slice(self.name), part
            count = max(1, AT_ONCE * len(into) // into.numel())
            for first in range(0, len(into), count):
                block = into[first : first + count]
                begin = rows.start + first
                block.copy_(there[(slice(begin, begin + len(block)), *columns)])


def stored(path: Path) -> Iterator[tuple[Stored, torch.Size, torch.dtype]]:
    """Each tensor of a safetensors file, and what is said of it; none is read.

    Raises:
        ValueError: one is of a type that is not known here.
    """
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  it is no dictionary
            one = file.get_slice(name)
            if one.get_dtype() not in DTYPES:
                raise ValueError(f"{path}: {name} is {one.get_dtype()}, known {', '.join(DTYPES)}")
            yield Stored(path, name), torch.Size(one.get_shape()), DTYPES[one.get_dtype()]
