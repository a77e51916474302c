"""A decoder-only transformer: RMSNorm, rotary positions, causal attention, SwiGLU, tied embeddings.

As in Llama (Touvron et al. 2023), small enough to read at one go.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x and the result: (batch, t, dim)."""
        batch, length, dim = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, dim))


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020), 8/3 × dim hidden units: as many weights as 4 × dim with GELU."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = 16 * -(-dim * 8 // (3 * 16))
        self.gate_up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


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
    """Tokens (batch, t) → logits (batch, t, vocabulary), t at most ``context_length``."""

    def __init__(self, config: LanguageModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.dim)
        self.blocks = nn.ModuleList(Block(config.dim, config.heads) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim)
        cos, sin = rotary_angles(config.context_length, config.dim // config.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise(config.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.embedding.weight)  # tied: Press & Wolf 2017

    def _initialise(self, layers: int) -> None:
        """Normal(0, 0.02), the layers that add to the stream scaled by 1/√(2 × layers) (GPT-2)."""
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            adds_to_stream = name.endswith(("out.weight", "down.weight"))
            std = 0.02 / (2 * layers) ** 0.5 if adds_to_stream else 0.02
            nn.init.normal_(parameter, std=std)
