"""Context parallel: each rank has a part of every sequence, and the keys and values of all of it.

As in Llama 3 (Grattafiori et al. 2024, section 3.3.2): the sequence is cut into 2 × ranks chunks,
and rank i takes chunk i from the front and chunk i from the back, so that under a causal mask all
ranks have the same work; before attention the ranks gather keys and values, which are small
relative to the rest if heads share them, and any mask works with the same algorithm.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

if TYPE_CHECKING:
    from training.workloads.language_model.config import LanguageModelConfig


def places(length: int, index: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Return places in the sequence of rank ``index``'s tokens, (length / count,)."""
    chunk = length // (2 * count)
    front = torch.arange(index * chunk, (index + 1) * chunk, device=device)
    back = torch.arange(length - (index + 1) * chunk, length - index * chunk, device=device)
    return torch.cat((front, back))


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the ranks of a mesh share sequences of one length."""

    mesh: DeviceMesh
    own_places: Tensor
    """Places of this rank's tokens, (t,)."""
    all_places: Tensor
    """Places of all ranks' tokens, rank by rank: the order of gathered tensors."""

    @classmethod
    def from_mesh(cls, mesh: DeviceMesh, length: int) -> "Sharing":
        device, count = mesh.device_type, mesh.size()
        parts = [places(length, index, count, device) for index in range(count)]
        return cls(mesh, parts[mesh.get_local_rank()], torch.cat(parts))

    def gather(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Turn this rank's keys and values (n, heads, t, width) into all ranks', in the order of
        ``all_places``.

        In the backward pass each rank gets the sum of the ranks' gradients of its own.
        """
        from torch.distributed import _functional_collectives as collectives

        both = torch.stack((k.type_as(v), v))
        # The newer name; the older one warns if both exist (torch 2.13).
        newer = getattr(collectives, "all_gather_single_autograd", None)
        gather = newer or collectives.all_gather_tensor_autograd
        k, v = gather(both, 3, self.mesh.get_group()).unbind()
        return k, v


# An end token follows each document. If every token of the texts is predicted, the end
# token is also what the next document's first token is predicted from, so a document begins
# *with* the end token before it: the end token alone, then the document, is what it would be by
# itself. Of prompts with their completions a prompt's first token is predicted from nothing, so
# the next record begins *behind* the end token.
#
# What a window cuts off is lost: the rest of the document begins where the window does.


@dataclass(frozen=True, slots=True)
class Documents:
    """Identifies the documents in a sample by the end token."""

    end: int
    behind: bool
    """True if a document begins behind an end token, not with it."""

    @classmethod
    def from_config(cls, config: "LanguageModelConfig", end: int) -> "Documents | None":
        """Create it for a configuration; None if attention spans the whole window."""
        if config.attend == "window":
            return None
        return cls(end, behind=config.records == "completions")

    def number(self, tokens: Tensor) -> Tensor:
        """Map tokens (n, t) to the number of each token's document in its sample, int32 (n, t)."""
        ends = (tokens == self.end).int()
        numbers = ends.cumsum(1, dtype=torch.int32)
        return numbers - ends if self.behind else numbers


def positions(documents: Tensor) -> Tensor:
    """Return each token's place within its document, from 0; both (n, t)."""
    places = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    # The last beginning so far is that of the token's own document.
    return places - places.where(begins, 0).cummax(1).values
