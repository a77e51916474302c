"""A decoder-only transformer: RMSNorm, rotary positions, causal attention, SwiGLU, tied embeddings.

As in Llama (Touvron et al. 2023), small enough to read at one go.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from training.workloads.language_model.config import LanguageModelConfig

ROPE_BASE = 10_000.0  # Su et al. 2021, RoFormer, section 3.2.2


def rotary_angles(length: int, width: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position × frequency, each of shape (length, width / 2)."""
    frequencies = ROPE_BASE ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x[i], x[i + width/2]) by their position's angle.

    x: (batch, heads, t, width); cos and sin: (t, width / 2).
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).type_as(x)


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.head_width = dim // heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x and the result: (batch, t, dim)."""
        batch, length, _ = x.shape
        # Head by head, so that a tensor-parallel rank's rows of the weight are whole heads.
        qkv = self.qkv(x).view(batch, length, -1, 3, self.head_width)
        q, k, v = qkv.permute(3, 0, 2, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020), 8/3 × dim hidden units: as many weights as 4 × dim with GELU."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = 16 * -(-dim * 8 // (3 * 16))
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention, then feed-forward, each on the normalised stream and added to it."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(dim)
        self.attention = Attention(dim, heads)
        self.feed_forward_norm = nn.RMSNorm(dim)
        self.feed_forward = FeedForward(dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """Tokens (batch, t) → logits (batch, t, vocabulary), t at most ``context_length``.

    A pipeline stage of it (see ``parallel.stage``) takes the stream (batch, t, dim) unless it is
    the first, and gives it unless it is the last.
    """

    def __init__(self, config: "LanguageModelConfig", vocabulary: int) -> None:
        super().__init__()
        self.first = self.last = True
        self.embedding = nn.Embedding(vocabulary, config.dim)
        blocks = {str(n): Block(config.dim, config.heads) for n in range(config.layers)}
        self.blocks = nn.ModuleDict(blocks)  # by name, so that a stage's have the model's names
        self.norm = nn.RMSNorm(config.dim)
        self.head = F.linear
        cos, sin = rotary_angles(config.context_length, config.dim // config.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise(config.layers)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        if self.first:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x, cos, sin)
        # Tied, Press & Wolf 2017: the embedding's weight, read the other way round.
        return self.head(self.norm(x), self.embedding.weight) if self.last else x

    def _initialise(self, layers: int) -> None:
        """Normal(0, 0.02), the layers that add to the stream scaled by 1/√(2 × layers) (GPT-2)."""
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            adds_to_stream = name.endswith(("out.weight", "down.weight"))
            std = 0.02 / (2 * layers) ** 0.5 if adds_to_stream else 0.02
            nn.init.normal_(parameter, std=std)
