"""Read the weights to export, from many ranks or from one process; write a safetensors file."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from training.checkpoint.tensor_table import build_file_header
from training.strategies.ranks import Ranks
from training.weights.initial.build_model import record_changes
from training.workloads import Workload
from trainyard.common import atomic_file

ALONE = Ranks(0, 0, 1, torch.device("cpu"))


class Weights(Protocol):
    """A model's state. Every strategy implements this protocol, and so does ``LocalWeights``."""

    @property
    def ranks(self) -> Ranks: ...

    def make_meta_tensors(self) -> Mapping[str, Tensor]:
        """Return a mapping of every name in the model's state to a tensor on meta of its type and
        shape.

        A tensor with several names is a single object in the mapping, too.
        """

    def list_holders(self, name: str) -> Sequence[int]:
        """Return the ranks that hold a tensor or a part of it."""

    def gather_full_tensors(
        self, requests: Iterable[tuple[str, Collection[int]]]
    ) -> Iterator[Tensor | None]:
        """Yield whole tensors one by one, on the CPU of the ranks given with each name; None on
        other ranks.

        Use the first of a tensor's names. Collective: call it on every rank with the same
        arguments.
        """


@dataclass(frozen=True)
class LocalWeights:
    """The state of a model that is in a single process."""

    state: Mapping[str, Tensor]
    ranks: Ranks = ALONE

    def make_meta_tensors(self) -> Mapping[str, Tensor]:
        tensors: dict[int, Tensor] = {}
        for tensor in self.state.values():
            if id(tensor) not in tensors:
                tensors[id(tensor)] = tensor.detach().to("meta")
        return {name: tensors[id(tensor)] for name, tensor in self.state.items()}

    def list_holders(self, name: str) -> Sequence[int]:
        return (0,)

    def gather_full_tensors(
        self, requests: Iterable[tuple[str, Collection[int]]]
    ) -> Iterator[Tensor | None]:
        for name, _ in requests:
            yield self.state[name].detach().cpu()


def find_first_names(meta_tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return a mapping of every name to the first name of the same tensor."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(meta_tensor), name) for name, meta_tensor in meta_tensors.items()
    }


def gather_weights(
    source: Weights, names: Iterable[str] | None = None, keepers: Collection[int] = (0,)
) -> dict[str, Tensor]:
    """Return the model's state, or only its tensors ``names``, whole, on the ranks ``keepers``; an
    empty mapping on the others.

    Collective: call it on every rank. A tensor with several names is a single object in the result,
    too.
    """
    first = find_first_names(source.make_meta_tensors())
    chosen_names = [*first] if names is None else [*names]
    unique_names = [*dict.fromkeys(first[name] for name in chosen_names)]
    tensors = dict(
        zip(
            unique_names,
            source.gather_full_tensors((n, keepers) for n in unique_names),
            strict=True,
        )
    )
    return {n: tensor for n in chosen_names if (tensor := tensors[first[n]]) is not None}


def count_parameters(source: Weights) -> int:
    """Return the number of elements in the state; a tensor with several names counts once."""
    return sum(
        meta_tensor.numel()
        for meta_tensor in {id(t): t for t in source.make_meta_tensors().values()}.values()
    )


TIES = "tied_weights"
"""Key in config.json of the mapping of weights' further names to the names in model.safetensors."""


def untie_weights(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, each under one name, and a mapping of each further name to that name.

    Each tensor is written once, and config.json lists the further names. (The file's own metadata
    is not used for this: its order, and so the bytes, would differ each time.) The tensors may be
    on meta.
    """
    unique_tensors: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    first: dict[tuple, str] = {}
    for name, tensor in tensors.items():
        # Identifies memory on meta, too, which has no address.
        memory = tensor.untyped_storage()._cdata, tensor.storage_offset()
        key = (memory, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and first.setdefault(key, name) != name:
            ties[name] = first[key]
            continue
        unique_tensors[name] = tensor
    return unique_tensors, ties


def retie_weights(
    weights: Mapping[str, Tensor], description: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return the weights of model.safetensors under all their names.

    Args:
        description: content of config.json.

    Raises:
        KeyError: a weight is missing.
    """
    ties = {name: weights[first] for name, first in description.get(TIES, {}).items()}
    return {**weights, **ties}


def fill_weights(model: nn.Module, workload: Workload, weights: Mapping[str, Tensor]) -> None:
    """Write exported weights, given under all their names, into ``model``, which may be on meta.

    Raises:
        RuntimeError, KeyError: the weights do not belong to this model.
    """
    with record_changes(model):
        model.load_state_dict(workload.restore(weights))


# Writing a safetensors file tensor by tensor, in any order, never with the whole file in memory.
#
# The format: eight bytes with the length of the header, little-endian; the header, JSON, which
# gives type, shape and offset of each tensor; the tensors, little-endian, one after the other
# (github.com/huggingface/safetensors, "Format"). The header follows from shapes and types alone, so
# it can be written before any tensor is known. The bytes are those that
# ``safetensors.torch.save_file`` writes: the widest types first, those of one type by name, the
# header padded with spaces to a multiple of eight.

TYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "complex64": "C64",
    "float32": "F32", "uint32": "U32", "int32": "I32",
    "bfloat16": "BF16", "float16": "F16", "uint16": "U16", "int16": "I16",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""Mapping of torch's types to their names in the file, in the order in which safetensors lays
them out.
"""
METADATA = {"format": "pt"}
"""File metadata that transformers writes and expects."""


class SafeFile:
    """A file being written: ``put`` each tensor, then ``finish`` or ``discard``."""

    def __init__(self, path: Path, meta_tensors: Mapping[str, Tensor]) -> None:
        """Open the file, and write its header.

        Args:
            meta_tensors: mapping of each name to a tensor with the type and shape that will be
                written; it may be on meta.
        """
        self.path, self._meta_tensors = path, dict(meta_tensors)
        head, self._offsets = build_header(self._meta_tensors)
        path.parent.mkdir(parents=True, exist_ok=True)
        file_size = len(head) + sum(map(count_bytes, self._meta_tensors.values()))
        self._draft = atomic_file.Draft(path, size=file_size)
        self._draft.file.write(head)

    def put(self, name: str, tensor: Tensor) -> None:
        """Write a tensor that is on the CPU at its offset.

        Raises:
            ValueError: its type or shape differs from that given in ``meta_tensors``.
            StorageError: there is no space for it; what was written is removed.
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
            self._draft.file.seek(self._offsets[name])
            self._draft.file.write(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
        except OSError:
            self.discard()
            raise

    def finish(self) -> None:
        """Check that the file is complete, and give it its final name.

        Raises:
            ValueError: a tensor was not written.
        """
        if self._meta_tensors:
            self.discard()
            raise ValueError(f"{self.path}: {next(iter(self._meta_tensors))} was never written")
        self._draft.finish()

    def discard(self) -> None:
        """Remove what was written so far."""
        self._draft.discard()


def build_header(meta_tensors: Mapping[str, Tensor]) -> tuple[bytes, dict[str, int]]:
    """Return (the file's header, name → offset in the file at which its tensor begins)."""
    ranks = {kind: rank for rank, kind in enumerate(TYPES)}
    order = sorted(
        meta_tensors, key=lambda name: (ranks[_format_dtype(meta_tensors[name])], name.encode())
    )
    tensors = [(name, meta_tensors[name]) for name in order]
    head, offsets = build_file_header(
        METADATA, [(n, TYPES[_format_dtype(t)], list(t.shape), count_bytes(t)) for n, t in tensors]
    )
    return head, {name: len(head) + offset for name, offset in offsets.items()}


def count_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def _format_dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
