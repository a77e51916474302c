"""Writes a safetensors file tensor by tensor, in any order, never whole in memory.

The format: eight bytes with the length of the header, little-endian; the header, JSON, which says
type, shape and place of each tensor; the tensors, little-endian, one after the other
(github.com/huggingface/safetensors, "Format"). The header follows from shapes and types alone, so
it can stand before any tensor is known. The bytes are those that ``safetensors.torch.save_file``
writes: the widest types first, those of one type by name, the header filled up with spaces to a
multiple of eight.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainyard.common import atomic_file

TYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "complex64": "C64",
    "float32": "F32", "uint32": "U32", "int32": "I32",
    "bfloat16": "BF16", "float16": "F16", "uint16": "U16", "int16": "I16",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""torch's types → their names in the file, in the order in which safetensors lays them out."""
METADATA = {"format": "pt"}
"""File metadata that transformers writes and expects."""


class SafeFile:
    """A file being written: ``put`` each tensor, then ``finish`` or ``discard``."""

    def __init__(self, path: Path, meta_tensors: Mapping[str, Tensor]) -> None:
        """Open the file; ``meta_tensors``: name → a tensor with the coming type and shape, even on
        meta.
        """
        self.path, self._meta_tensors = path, dict(meta_tensors)
        head, self._places = header(self._meta_tensors)
        path.parent.mkdir(parents=True, exist_ok=True)
        file_size = len(head) + sum(map(size, self._meta_tensors.values()))
        self._draft = atomic_file.Draft(path, size=file_size)
        self._draft.file.write(head)

    def put(self, name: str, tensor: Tensor) -> None:
        """Write a tensor that is on the CPU to its place.

        Raises:
            ValueError: its type or shape is not the one announced.
            StorageError: there is no room for it; what was written is removed.
        """
        meta_tensor = self._meta_tensors.pop(name)
        if (meta_tensor.dtype, meta_tensor.shape) != (tensor.dtype, tensor.shape):
            raise ValueError(
                f"{name}: is {tensor.dtype} {tuple(tensor.shape)}; expected {meta_tensor.dtype} "
                f"{tuple(meta_tensor.shape)}"
            )
        if not tensor.numel():
            return
        try:
            self._draft.file.seek(self._places[name])
            self._draft.file.write(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
        except OSError:
            self.discard()
            raise

    def finish(self) -> None:
        """Check that the file is complete, and give it its name.

        Raises:
            ValueError: a tensor was not put.
        """
        if self._meta_tensors:
            self.discard()
            raise ValueError(f"{self.path}: {next(iter(self._meta_tensors))} was never written")
        self._draft.finish()

    def discard(self) -> None:
        """Remove what was written so far."""
        self._draft.discard()


def header(meta_tensors: Mapping[str, Tensor]) -> tuple[bytes, dict[str, int]]:
    """Return (the file's header, name → offset in the file at which its tensor begins)."""
    places = {kind: place for place, kind in enumerate(TYPES)}
    order = sorted(
        meta_tensors, key=lambda name: (places[_kind(meta_tensors[name])], name.encode())
    )
    entries: dict[str, object] = {"__metadata__": METADATA}
    begins, end = {}, 0
    for name in order:
        meta_tensor = meta_tensors[name]
        begins[name], end = end, end + size(meta_tensor)
        entries[name] = {
            "dtype": TYPES[_kind(meta_tensor)],
            "shape": list(meta_tensor.shape),
            "data_offsets": [begins[name], end],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, {n: 8 + len(text) + b for n, b in begins.items()}


def size(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
