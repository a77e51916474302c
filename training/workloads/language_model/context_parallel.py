"""Context parallel: each rank has a part of every sequence, and the keys and values of all of it.

As in Llama 3 (Grattafiori et al. 2024, section 3.3.2), the sequence is cut into 2 × ranks chunks.
Rank i gets chunk i from the front and chunk i from the back, so that all ranks have the same work
under a causal mask. Before attention the ranks gather all keys and values. These are small relative
to the rest if heads share them, and the algorithm is the same for any mask.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

if TYPE_CHECKING:
    from training.workloads.language_model.config import LanguageModelConfig


def assign_positions(
    length: int, index: int, count: int, device: torch.device | str = "cpu"
) -> Tensor:
    """Return the positions in the sequence of rank ``index``'s tokens, (length / count,)."""
    chunk = length // (2 * count)
    front = torch.arange(index * chunk, (index + 1) * chunk, device=device)
    back = torch.arange(length - (index + 1) * chunk, length - index * chunk, device=device)
    return torch.cat((front, back))


@dataclass(frozen=True, slots=True)
class Sharing:
    """Distribution of sequences of one length over the ranks of a mesh."""

    mesh: DeviceMesh
    own_places: Tensor
    """Positions of this rank's tokens in the sequence, (t,)."""
    all_places: Tensor
    """Positions of all ranks' tokens, rank by rank, which is the order of gathered tensors."""

    @classmethod
    def from_mesh(cls, mesh: DeviceMesh, length: int) -> "Sharing":
        device, count = mesh.device_type, mesh.size()
        parts = [assign_positions(length, index, count, device) for index in range(count)]
        return cls(mesh, parts[mesh.get_local_rank()], torch.cat(parts))

    def gather(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return all ranks' keys and values, in the order of ``all_places``; collective.

        ``k`` and ``v`` are this rank's, (n, heads, t, width). In the backward pass each rank gets
        the sum of all ranks' gradients of its own keys and values.
        """
        from torch.distributed import _functional_collectives as collectives

        both = torch.stack((k.type_as(v), v))
        # The older function warns if the newer one exists (torch 2.13).
        newer = getattr(collectives, "all_gather_single_autograd", None)
        gather = newer or collectives.all_gather_tensor_autograd
        k, v = gather(both, 3, self.mesh.get_group()).unbind()
        return k, v


# An end token follows each document. If every token of the texts is predicted, the end token is
# also the input from which the next document's first token is predicted. So a document begins
# *with* the end token before it; then its scores are the same as those of the document alone. In
# prompts with completions, a prompt's first token is not predicted, so the next record begins
# *after* the end token.
#
# If a window cuts a document, its rest is treated as a document that begins at the window's start.


@dataclass(frozen=True, slots=True)
class Documents:
    """Finds the documents in a sample by the end token."""

    end: int
    behind: bool
    """True if a document begins after an end token, False if it begins with it."""

    @classmethod
    def from_config(cls, config: "LanguageModelConfig", end: int) -> "Documents | None":
        """Create the finder for a configuration; None if attention spans the whole window."""
        if config.attend == "window":
            return None
        return cls(end, behind=config.records == "completions")

    def number_documents(self, tokens: Tensor) -> Tensor:
        """Return the number of each token's document in its sample, int32; both (n, t)."""
        ends = (tokens == self.end).int()
        numbers = ends.cumsum(1, dtype=torch.int32)
        return numbers - ends if self.behind else numbers


def compute_positions(documents: Tensor) -> Tensor:
    """Return each token's position within its document, from 0; both (n, t)."""
    positions = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    # The largest start so far is that of the token's own document.
    return positions - positions.where(begins, 0).cummax(1).values
