"""Location of the weights to export: spread over many ranks, or in one process."""

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
    """A model's state: every strategy implements it, and so does ``Held``."""

    @property
    def ranks(self) -> Ranks: ...

    def looks(self) -> Mapping[str, Tensor]:
        """Return every name in the model's state → a tensor on meta of its type and shape.

        A tensor with several names is a single object here, too.
        """

    def holders(self, name: str) -> Sequence[int]:
        """Return the ranks that hold a tensor, or a part of it."""

    def whole(self, wanted: Iterable[tuple[str, Collection[int]]]) -> Iterator[Tensor | None]:
        """Yield whole tensors one by one, on the CPU of the ranks named with them; None elsewhere.

        Use the first of a tensor's names. Every rank takes part, with the same arguments.
        """


@dataclass(frozen=True)
class Held:
    """The state of a model that one process holds."""

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
    """Return every name → the first name of the same tensor."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(look), name) for name, look in looks.items()}


def gathered(
    source: Weights, names: Iterable[str] | None = None, keepers: Collection[int] = (0,)
) -> dict[str, Tensor]:
    """Return the state, or these names of it, whole on some ranks; empty on the others.

    Every rank takes part. A tensor with several names is a single object here, too.
    """
    first = first_names(source.looks())
    chosen = [*first] if names is None else [*names]
    wanted = [*dict.fromkeys(first[name] for name in chosen)]
    found = dict(zip(wanted, source.whole((n, keepers) for n in wanted), strict=True))
    return {n: whole for n in chosen if (whole := found[first[n]]) is not None}


def parameters(source: Weights) -> int:
    """Return how many numbers the state has; a tensor with several names counts once."""
    return sum(look.numel() for look in {id(t): t for t in source.looks().values()}.values())


TIES = "tied_weights"
"""Key in config.json: further names of weights → the name used in model.safetensors."""


def untied(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return (the tensors, each once; further name → name of the same tensor among them).

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
