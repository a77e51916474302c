"""Location of the weights to export: spread over many ranks, or in one process."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from training.strategies.ranks import Ranks
from training.weights.initial.build_model import changing
from training.workloads import Workload

ALONE = Ranks(0, 0, 1, torch.device("cpu"))


class Weights(Protocol):
    """A model's state: every strategy implements it, and so does ``LocalWeights``."""

    @property
    def ranks(self) -> Ranks: ...

    def meta_tensors(self) -> Mapping[str, Tensor]:
        """Return every name in the model's state → a tensor on meta of its type and shape.

        A tensor with several names is a single object here, too.
        """

    def holders(self, name: str) -> Sequence[int]:
        """Return the ranks that hold a tensor, or a part of it."""

    def gather_full_tensors(
        self, requests: Iterable[tuple[str, Collection[int]]]
    ) -> Iterator[Tensor | None]:
        """Yield whole tensors one by one, on the CPU of the ranks named with them; None elsewhere.

        Use the first of a tensor's names. Every rank takes part, with the same arguments.
        """


@dataclass(frozen=True)
class LocalWeights:
    """The state of a model that one process holds."""

    state: Mapping[str, Tensor]
    ranks: Ranks = ALONE

    def meta_tensors(self) -> Mapping[str, Tensor]:
        tensors: dict[int, Tensor] = {}
        for tensor in self.state.values():
            if id(tensor) not in tensors:
                tensors[id(tensor)] = tensor.detach().to("meta")
        return {name: tensors[id(tensor)] for name, tensor in self.state.items()}

    def holders(self, name: str) -> Sequence[int]:
        return (0,)

    def gather_full_tensors(
        self, requests: Iterable[tuple[str, Collection[int]]]
    ) -> Iterator[Tensor | None]:
        for name, _ in requests:
            yield self.state[name].detach().cpu()


def first_names(meta_tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return every name → the first name of the same tensor."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(meta_tensor), name) for name, meta_tensor in meta_tensors.items()
    }


def gather_weights(
    source: Weights, names: Iterable[str] | None = None, keepers: Collection[int] = (0,)
) -> dict[str, Tensor]:
    """Return the state, or these names of it, whole on some ranks; empty on the others.

    Every rank takes part. A tensor with several names is a single object here, too.
    """
    first = first_names(source.meta_tensors())
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


def parameters(source: Weights) -> int:
    """Return how many numbers the state has; a tensor with several names counts once."""
    return sum(
        meta_tensor.numel()
        for meta_tensor in {id(t): t for t in source.meta_tensors().values()}.values()
    )


TIES = "tied_weights"
"""Key in config.json: further names of weights → the name used in model.safetensors."""


def untie_weights(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return (the tensors, each once; further name → name of the same tensor among them).

    Each is written once, and config.json names the others. (Not the file's own metadata: its
    order, and so the bytes, would differ each time.) They may be on meta.
    """
    unique_tensors: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    first: dict[tuple, str] = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()._cdata, tensor.storage_offset()  # meta has no address
        key = (memory, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and first.setdefault(key, name) != name:
            ties[name] = first[key]
            continue
        unique_tensors[name] = tensor
    return unique_tensors, ties


def retie_weights(
    weights: Mapping[str, Tensor], description: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return a model.safetensors' weights under all names; ``description``: its config.json.

    Raises:
        KeyError: a weight is missing.
    """
    ties = {name: weights[first] for name, first in description.get(TIES, {}).items()}
    return {**weights, **ties}


def fill(model: nn.Module, workload: Workload, weights: Mapping[str, Tensor]) -> None:
    """Write exported weights, given under all their names, into ``model``, which may be on meta.

    Raises:
        RuntimeError, KeyError: the weights are not this model's.
    """
    with changing(model):
        model.load_state_dict(workload.restore(weights))
