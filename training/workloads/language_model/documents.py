"""Where a sample's documents begin, so that nothing attends across them.

An end token stands behind each document. Where every token of the texts is predicted, the end
token is also what the next document's first token is predicted from, so a document begins *with*
the end token before it: the end token alone, then the document, is what it would be by itself. Of
prompts with their completions a prompt's first token is predicted from nothing, so the next record
begins *behind* the end token.

What a window cuts off is not there: the rest of the document begins where the window does.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from training.workloads.language_model.config import LanguageModelConfig


@dataclass(frozen=True, slots=True)
class Documents:
    """Tells documents apart by the end token."""

    end: int
    behind: bool
    """Whether a document begins behind an end token, not with it."""

    @classmethod
    def of(cls, config: "LanguageModelConfig", end: int) -> "Documents | None":
        """None where attention goes through the whole window."""
        if config.attend == "window":
            return None
        return cls(end, behind=config.records == "completions")

    def number(self, tokens: Tensor) -> Tensor:
        """Tokens (n, t) → which document of its sample each belongs to, int32 (n, t)."""
        ends = (tokens == self.end).int()
        numbers = ends.cumsum(1, dtype=torch.int32)
        return numbers - ends if self.behind else numbers


def positions(documents: Tensor) -> Tensor:
    """Each token's place within its document, from 0; both (n, t)."""
    places = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return places - places.where(begins, 0).cummax(1).values
