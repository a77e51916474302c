"""Writes a safetensors file tensor by tensor, in any order, never whole in memory.

The format: eight bytes with the length of the header, little-endian; the header, JSON, which says
type, shape and place of each tensor; the tensors, little-endian, one after the other
(github.com/huggingface/safetensors, "Format"). The header follows from shapes and types alone, so
it can stand before any tensor is known. The bytes are those that ``safetensors.torch.save_file``
writes: the widest types first, those of one type by name, the header filled up with spaces to a
multiple of eight.
"""

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from training.weights.finetuning import hugging_face_folder
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

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


# A model's weights as int8, with a scale for each output channel: a quarter of the bytes.
#
# A weight with two or more dimensions is stored as int8, and beside it ``<name>.int8_scale``,
# float32
# (channels, 1, …); the weight is their product. The model then computes in floating point with
# these
# products, so its answers are the same on every machine, and take as long as with the full
# weights.
#
# Why not int8 arithmetic: torch's dynamic quantisation is deprecated (torch.ao.quantization, and
# the
# quantised tensors beneath it), and takes one scale for the activations of all requests in a
# batch,
# so that an answer would depend on the others; ``torch._int_mm``, on which torchao's rests, is
# some
# thirty times slower than float32 on CPUs without VNNI.

SCALE = ".int8_scale"
LARGEST = 127
OTHERS = ("architectures", "model_type")
"""Left out of config.json: other libraries then refuse the folder, rather than reading the integers
as weights."""


def quantise_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return (int8, scale) of a weight: each channel's largest element becomes ±127."""
    flat = weight.float().flatten(1)
    largest = flat.abs().amax(1, keepdim=True)
    scale = (largest / LARGEST).where(largest > 0, 1.0)
    integers = (flat / scale).round().clamp(-LARGEST, LARGEST).to(torch.int8)
    return integers.view(weight.shape), scale.view(-1, *[1] * (weight.dim() - 1))


def dequantise_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's weights, those stored as int8 as float32."""
    tensors = {name: tensor for name, tensor in weights.items() if not name.endswith(SCALE)}
    for name in weights.keys() - tensors.keys():
        weight_name = name.removesuffix(SCALE)
        tensors[weight_name] = tensors[weight_name].float() * weights[name]
    return tensors


def write(model: Path, target: Path) -> None:
    """Write the model in folder ``model`` into folder ``target``, with its weights as int8.

    Raises:
        DataError: a weight is not finite, or none has two dimensions.
    """
    files = hugging_face_folder.weights(model)
    ignore_files = shutil.ignore_patterns(*(file.name for file in files), hugging_face_folder.INDEX)
    shutil.copytree(model, target, ignore=ignore_files, dirs_exist_ok=True)
    weights: dict[str, Tensor] = {}
    for name, weight in (pair for file in files for pair in load_file(file).items()):
        if not (weight.is_floating_point() and weight.dim() > 1 and weight.numel()):
            weights[name] = weight
            continue
        if not weight.isfinite().all():
            raise DataError(f"int8: weight {name} is not finite")
        weights[name], weights[name + SCALE] = quantise_weight(weight)
    if not any(name.endswith(SCALE) for name in weights):
        raise DataError(
            "gate.int8: no weight of the model has two dimensions, so int8 would change nothing; "
            "remove the field"
        )
    output = SafeFile(target / hugging_face_folder.WEIGHTS, weights)
    for name, weight in weights.items():
        output.put(name, weight)
    output.finish()
    description = hugging_face_folder.description(model) | {"precision": "int8"}
    config = {name: value for name, value in description.items() if name not in OTHERS}
    atomic_file.write(target / hugging_face_folder.CONFIG, json.dumps(config, indent=1))
