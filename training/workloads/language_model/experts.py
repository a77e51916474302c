"""Mixture of experts: a feed-forward layer of which each token takes a few of many (Shazeer et al.
2017).

Routing is DeepSeek-V3's (DeepSeek-AI 2024, section 2.1.2): each expert's score is a sigmoid; the
``active_experts`` with the largest sums of score and bias are taken, of equal ones the first, and
weighed by their scores alone, which are made to sum up to 1. No token is dropped.

The bias balances the load without a loss of its own (Wang et al. 2024, "Auxiliary-Loss-Free Load
Balancing Strategy for Mixture-of-Experts"): an expert that had fewer tokens than the mean gains,
one that had more loses. Of the paper's two rules it is the one without the sign, relative to the
mean load. That one is linear, so what ``training.microbatches`` makes of the buffer, the mean over
all micro-batches of all ranks, is the update with the load of the global batch: it depends neither
on the ranks nor on the micro-batch.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.workloads.language_model.precision import narrowed

if TYPE_CHECKING:
    from training.workloads.language_model.config import LanguageModelConfig
    from training.workloads.language_model.exchange import Exchange

ALIGNED = 8
"""Elements in 16 bytes of bfloat16, of which rows are multiples in torch's grouped product."""


class Router(nn.Module):
    """Which experts each token takes, and how much of each.

    Attributes:
        bias: float32 (experts,), a buffer; changed by each forward pass in training.
    """

    def __init__(self, dim: int, experts: int, active: int, rate: float) -> None:
        super().__init__()
        self.active, self.rate = active, rate
        self.weight = nn.Parameter(torch.empty(experts, dim))
        self.register_buffer("bias", torch.zeros(experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of tokens (n, dim): experts, int64 (n, active), their weights (n, active) in float32 or
        wider, and how many tokens each expert has, int64 (experts,)."""
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(x.dtype, torch.float32)
            scores = F.linear(x.to(wide), self.weight.to(wide)).sigmoid()
        wanted = scores.detach() + self.bias
        chosen = wanted.sort(dim=1, descending=True, stable=True).indices[:, : self.active]
        weights = scores.gather(1, chosen)
        counts = torch.zeros_like(scores, dtype=torch.int64).scatter_(1, chosen, 1).sum(0)
        if self.training:
            self._balance(counts)
        return chosen, weights / weights.sum(1, keepdim=True), counts

    @torch.no_grad()
    def _balance(self, counts: Tensor) -> None:
        """Another tensor, and not the same one changed: see ``microbatches.Again``."""
        load = counts.to(self.bias.dtype)
        self.bias = self.bias + self.rate * (1 - load / load.mean())


class Stacked(nn.Module):
    """The same layer of all experts: (experts × rows, columns), expert after expert.

    Two dimensions, so that however many ranks share them, they share rows.
    """

    stacked = True  # Muon does not take them for one matrix

    def __init__(self, experts: int, rows: int, columns: int) -> None:
        super().__init__()
        self.rows = rows
        self.weight = nn.Parameter(torch.empty(experts * rows, columns))
        self.exchange: Exchange | None = None  # with ranks that have the other experts

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """Rows (n, columns), sorted by expert, each times its expert's weight: (n, rows).

        ``counts``: rows of each expert that this rank has.
        """
        weight = self.weight
        if self.exchange is not None:  # a DTensor
            weight = self.exchange.averaged(weight.to_local())
        return grouped(x, weight.to(x.dtype).unflatten(0, (-1, self.rows)), counts)


class Experts(nn.Module):
    """SwiGLU layers of which each token takes those that it is routed to."""

    def __init__(self, dim: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.gate = Stacked(experts, hidden, dim)
        self.up = Stacked(experts, hidden, dim)
        self.down = Stacked(experts, dim, hidden)
        self.exchange: Exchange | None = None  # with ranks that have the other experts

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """Tokens (n, dim), sorted by expert, through it; ``counts`` is (experts,)."""
        if self.exchange is None:
            return self._mine(x, counts)
        sent = self.exchange.send(x, counts)
        return sent.back(self._mine(sent.rows, sent.counts))

    def _mine(self, x: Tensor, counts: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x, counts)) * self.up(x, counts), counts)


class MixtureOfExperts(nn.Module):
    """In the place of a feed-forward layer: (…, dim) → (…, dim)."""

    def __init__(self, config: "LanguageModelConfig") -> None:
        super().__init__()
        given = config.dim, config.experts, config.active_experts, config.balance_rate
        self.router = Router(*given)
        self.experts = Experts(config.dim, config.hidden, config.experts)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        chosen, weights, counts = self.router(tokens)
        order = chosen.flatten().argsort(stable=True)
        rows = narrowed(tokens).index_select(0, order // self.router.active)
        made = self.experts(rows, counts).index_select(0, order.argsort())
        made = made.unflatten(0, (len(tokens), -1))
        return torch.bmm(weights[:, None].type_as(made), made).view_as(x)


def grouped(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """Rows (n, width) by groups of ``counts`` (groups,), each times the transpose of its own of the
    weights (groups, out, width): (n, out).

    In bfloat16 one product, of which the host needs not know the counts; else, and where torch has
    none (before 2.10) or rows are no multiples of 16 bytes, one a group.
    """
    product = getattr(F, "grouped_mm", None)
    aligned = not any(size % ALIGNED for size in weights.shape[1:])
    if product is not None and aligned and len(x) and x.dtype == torch.bfloat16:
        ends = counts.cumsum(0, dtype=torch.int32)
        return product(x, weights.transpose(1, 2), offs=ends)
    parts = x.split(counts.tolist())
    return torch.cat([part @ one.T for part, one in zip(parts, weights, strict=True)])
