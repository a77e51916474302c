"""Where the weights are that are handed on: on many ranks, or in one process."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from training.initial.build_model import changing
from training.strategies.ranks import Ranks
from training.workloads import Workload

ALONE = Ranks(0, 0, 1, torch.device("cpu"))


class Weights(Protocol):
    """A model's state: every strategy is one, and so is ``Held``."""

    ranks: Ranks

    def looks(self) -> Mapping[str, Tensor]:
        """Every name in the model's state → what its tensor is like, on meta.

        What is one tensor under several names is one here, too.
        """

    def holders(self, name: str) -> Sequence[int]:
        """The ranks that have a tensor, or a part of it, at hand."""

    def whole(self, wanted: Iterable[tuple[str, Collection[int]]]) -> Iterator[Tensor | None]:
        """One whole tensor after the other: on the CPU of the ranks that are named with it.

        Asked for by the first of its names. Every rank takes part, and asks for the same.
        """


@dataclass(frozen=True)
class Held:
    """The state of a model that one process has."""

    state: Mapping[str, Tensor]
    ranks: Ranks = ALONE

    def looks(self) -> Mapping[str, Tensor]:
        found: dict[int, Tensor] = {}
        for tensor in self.state.values():
            if id(tensor) not in found:
                found[id(tensor)] = tensor.detach().to("meta")
        return {name: found[id(tensor)] for name, tensor in self.state.items()}

    def holders(self, name: str) -> Sequence[int]:
        return (0,)

    def whole(self, wanted: Iterable[tuple[str, Collection[int]]]) -> Iterator[Tensor | None]:
        for name, _ in wanted:
            yield self.state[name].detach().cpu()


def first_names(looks: Mapping[str, Tensor]) -> dict[str, str]:
    """Every name → the first name of the same tensor."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(look), name) for name, look in looks.items()}


def gathered(
    source: Weights, names: Iterable[str] | None = None, keepers: Collection[int] = (0,)
) -> dict[str, Tensor]:
    """The whole state, or these names of it, on some ranks; the others get an empty one.

    Every rank takes part. What is one tensor under several names is one here, too.
    """
    first = first_names(source.looks())
    chosen = [*first] if names is None else [*names]
    wanted = [*dict.fromkeys(first[name] for name in chosen)]
    found = dict(zip(wanted, source.whole((n, keepers) for n in wanted), strict=True))
    return {n: found[first[n]] for n in chosen} if source.ranks.rank in keepers else {}


def parameters(source: Weights) -> int:
    """How many numbers the state has; what has several names counts once."""
    return sum(look.numel() for look in {id(t): t for t in source.looks().values()}.values())


TIES = "tied_weights"
"""In config.json: further names of weights → the name that model.safetensors has them under."""


def untied(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """(the tensors, each once; further name → name of the same tensor among them).

    Each is written once, and config.json names the others. (Not the file's own metadata: its
    order, and so the bytes, would differ each time.) They may be on meta.
    """
    whole: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    first: dict[tuple, str] = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()._cdata, tensor.storage_offset()  # meta has no address
        key = (memory, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and first.setdefault(key, name) != name:
            ties[name] = first[key]
            continue
        whole[name] = tensor
    return whole, ties


def retied(weights: Mapping[str, Tensor], description: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of a model.safetensors under all their names; ``description``: its config.json.

    Raises:
        KeyError: one is missing.
    """
    ties = {name: weights[first] for name, first in description.get(TIES, {}).items()}
    return {**weights, **ties}


def fill(model: nn.Module, workload: Workload, weights: Mapping[str, Tensor]) -> None:
    """Write exported weights, under all their names, into ``model``, which may be on meta.

    Raises:
        RuntimeError, KeyError: they are not this model's.
    """
    with changing(model):
        model.load_state_dict(workload.restore(weights))
