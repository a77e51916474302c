"""A decoder-only transformer: RMSNorm, rotary positions, causal attention, SwiGLU.

As in Llama (Touvron et al. 2023) and, depending on the settings, Qwen2 and Qwen3. It is small
enough to read in one sitting.

If every token attends to all tokens before it in the window, ``is_causal`` suffices. Otherwise one
mask is created for all blocks, without waiting for the device. On GPUs it is a block mask, with
which FlexAttention (Dong et al. 2024) skips masked blocks and stores no score matrix. Elsewhere,
and in float64, for which FlexAttention has no kernel, it is a boolean matrix.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Union

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.workloads.language_model.context_parallel import Documents, compute_positions

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from training.workloads.language_model.config import LanguageModelConfig
    from training.workloads.language_model.context_parallel import Sharing


Mask = Union[Tensor, "BlockMask", None]
"""Attention mask. None: causal, and queries and keys are of the same tokens."""


def build_mask(
    queries: Tensor, keys: Tensor, documents: Tensor | None, *, wide: bool = False
) -> "Tensor | BlockMask":
    """Return the attention mask between queries and keys at these positions, in any order.

    Args:
        queries, keys: positions of the tokens in the sample, (q,) and (k,).
        documents: document of each token of the sample, (n, t); None if there is only one.
        wide: True if attention is computed in float64.
    """
    is_visible = build_mask_rule(queries, keys, documents)
    samples, device = None if documents is None else len(documents), queries.device
    if device.type == "cuda" and not wide:
        make = _load_flex_function("create_block_mask", device.type)
        return make(is_visible, samples, None, len(queries), len(keys), device=device)
    sizes = (samples or 1, 1, len(queries), len(keys))
    axes = [torch.arange(size, device=device) for size in sizes]
    shapes = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
    return is_visible(*(axis.view(shape) for axis, shape in zip(axes, shapes, strict=True)))


def compute_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Return the output of attention, (n, heads, t, width). Groups of neighbouring heads may share
    k and v.
    """
    if not (mask is None or isinstance(mask, Tensor)):
        # Not every torch applies autocast to FlexAttention. v has autocast's type, as the output of
        # a matrix product.
        flex = _load_flex_function("flex_attention", q.device.type)
        return flex(q.type_as(v), k.type_as(v), v, block_mask=mask, enable_gqa=True)
    group_size = q.shape[1] // k.shape[1]
    if group_size > 1:
        k, v = (part.repeat_interleave(group_size, dim=1) for part in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)


def build_mask_rule(
    queries: Tensor, keys: Tensor, documents: Tensor | None
) -> Callable[..., Tensor]:
    """Return the attention mask as a function of (sample, head, query's index, key's index)."""

    def is_visible(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return whether the query may attend to the key."""
        before = keys[key] <= queries[query]
        if documents is None:
            return before
        is_same_document = documents[sample, queries[query]] == documents[sample, keys[key]]
        return before & is_same_document

    return is_visible


@cache
def _load_flex_function(name: str, device: str) -> Callable[..., Any]:
    """Return flex_attention's function ``name``; compiled on GPUs, it allocates no score matrix."""
    from torch.nn.attention import flex_attention

    function = getattr(flex_attention, name)
    return torch.compile(function) if device == "cuda" else function


def compute_rotary_angles(config: "LanguageModelConfig") -> tuple[Tensor, Tensor]:
    """Return cosine and sine of position × frequency, each of shape (context_length, width / 2).

    The frequencies are theta^(-2i / width) (Su et al. 2021, RoFormer, section 3.2.2).
    """
    length, width = config.context_length, config.head_width
    frequencies = config.rope_theta ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    if config.rope_scaling is not None:
        new_frequencies = [
            config.rope_scaling.scale_frequency(frequency) for frequency in frequencies.tolist()
        ]
        frequencies = torch.tensor(new_frequencies, dtype=torch.float32)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x[i], x[i + width/2]) by their position's angle.

    x: (batch, t, heads, width); cos and sin: (t, 1, width / 2), or (batch, t, 1, width / 2).
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).type_as(x)


class Attention(nn.Module):
    """Causal self-attention with rotary positions; keys and values may be shared by heads."""

    def __init__(self, config: "LanguageModelConfig") -> None:
        super().__init__()
        self.head_width, groups, bias = config.head_width, config.groups, config.attention_bias
        self.group_size = config.heads // groups  # query heads per key and value head
        rows = groups * (self.group_size + 2) * self.head_width
        self.qkv = nn.Linear(config.dim, rows, bias=bias != "none")
        self.out = nn.Linear(config.heads * self.head_width, config.dim, bias=bias == "all")
        if config.qk_norm:
            self.q_norm: nn.Module = nn.RMSNorm(self.head_width, config.norm_eps)
            self.k_norm: nn.Module = nn.RMSNorm(self.head_width, config.norm_eps)
        else:
            self.q_norm = self.k_norm = nn.Identity()
        self.sharing: Sharing | None = None  # set if other ranks have parts of each sequence

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Mask = None) -> Tensor:
        """Map x, (batch, t, dim), to a result of the same shape."""
        batch, length, _ = x.shape
        # The rows are sorted by group, so that a tensor-parallel rank's rows are whole groups.
        qkv = self.qkv(x).view(batch, length, -1, self.group_size + 2, self.head_width)
        parts = qkv.split((self.group_size, 1, 1), dim=3)
        q, k, v = (part.flatten(2, 3) for part in parts)
        q, k = rotate_pairs(self.q_norm(q), cos, sin), rotate_pairs(self.k_norm(k), cos, sin)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if self.sharing is not None:
            k, v = self.sharing.gather(k, v)
        y = compute_attention(q, k, v, mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """SwiGLU feed-forward layer (Shazeer 2020)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention, then feed-forward, each applied to the normalised stream and added to it."""

    def __init__(self, config: "LanguageModelConfig") -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.dim, config.norm_eps)
        self.feed_forward = FeedForward(config.dim, config.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Mask = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """Maps tokens (batch, t) to logits (batch, t, vocabulary), t at most ``context_length``.

    The stream is the hidden state that blocks add to, (batch, t, dim). A pipeline stage of the
    model (see ``parallel.keep_stage``) takes the stream instead of tokens unless it is the first,
    and returns it instead of logits unless it is the last. With sequence parallelism that is the
    rank's part of the stream. If ranks share each sequence (see ``context_parallel``), t is the
    length of the rank's own part: t / ranks.

    With ``documents`` no token attends to another document, and positions restart in each.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self, config: "LanguageModelConfig", vocabulary: int, documents: Documents | None = None
    ) -> None:
        super().__init__()
        self.documents = documents
        self.sharing: Sharing | None = None
        self.first = self.last = True
        self.parts = 1  # number of tensor-parallel ranks that split the stream's positions
        self.embedding = nn.Embedding(vocabulary, config.dim)
        blocks = {str(n): Block(config) for n in range(config.layers)}
        self.blocks = nn.ModuleDict(blocks)  # keyed, so that a stage keeps its blocks' names
        self.norm = nn.RMSNorm(config.dim, config.norm_eps)
        tied = config.tie_embeddings
        self.unembedding = None if tied else nn.Linear(config.dim, vocabulary, bias=False)
        self.head: Callable[..., Tensor] = F.linear
        cos, sin = compute_rotary_angles(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise_weights(config.layers)

    def forward(self, x: Tensor, documents: Tensor | None = None) -> Tensor:
        """Run the model.

        ``documents`` is ``Documents.number_documents`` of the whole samples, (batch, whole t). It
        is needed for stages and ranks that do not have the samples' tokens.
        """
        if self.documents is not None and documents is None:
            documents = self.documents.number_documents(x)
        length = x.shape[1] if self.first else x.shape[1] * self.parts
        cos, sin, attention_mask = self._prepare_positions(length, documents)
        if self.first:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x, cos, sin, attention_mask)
        if not self.last:
            return x
        # If tied (Press & Wolf 2017), this is the embedding's weight, transposed.
        output_embedding = self.embedding if self.unembedding is None else self.unembedding
        return self.head(self.norm(x), output_embedding.weight)

    def _prepare_positions(
        self, length: int, documents: Tensor | None
    ) -> tuple[Tensor, Tensor, Mask]:
        """Return cosine and sine of this rank's ``length`` positions, and the attention mask."""
        if documents is None and self.sharing is None:
            return self.cos[:length, None], self.sin[:length, None], None
        if self.sharing is None:
            own_places = all_places = torch.arange(length, device=self.cos.device)
        else:
            own_places, all_places = self.sharing.own_places, self.sharing.all_places
        attention_mask = build_mask(
            own_places, all_places, documents, wide=self.cos.dtype == torch.float64
        )
        if documents is None:
            return self.cos[own_places, None], self.sin[own_places, None], attention_mask
        token_positions = compute_positions(documents)[:, own_places, None]
        return self.cos[token_positions], self.sin[token_positions], attention_mask

    def _initialise_weights(self, layers: int) -> None:
        """Draw weights from normal(0, 0.02), as in GPT-2.

        The deviation is divided by √(2 × layers) for layers that add to the stream.
        """
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            if parameter.dim() < 2:
                continue
            adds_to_stream = name.endswith(("out.weight", "down.weight"))
            std = 0.02 / (2 * layers) ** 0.5 if adds_to_stream else 0.02
            nn.init.normal_(parameter, std=std)
