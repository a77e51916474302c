"""The formulas of a transformer's parts: parameters, work and kept activations, for one token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

Policy = Literal["none", "selective", "full"]

WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Bytes of an activation by the precision of the products; fp8 casts what is kept in 16 bits."""

STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class ActivationBytes:
    """Bytes per token that a forward pass leaves for the backward pass."""

    __pydantic_config__: ClassVar = STRICT
    whole: float
    """Bytes that each tensor-parallel rank has in full, unless they share the sequence, too."""

    split: float
    """Bytes that tensor-parallel ranks share."""

    gathered: float = 0.0
    """Bytes that each rank has in full, although they share the sequence."""

    def __add__(self, other: "ActivationBytes") -> "ActivationBytes":
        gathered_bytes = self.gathered + other.gathered
        return ActivationBytes(self.whole + other.whole, self.split + other.split, gathered_bytes)

    def on(self, tensor: int, *, sequence_parallel: bool) -> float:
        """Return bytes per token on each of ``tensor`` ranks."""
        shared_bytes = self.whole / (tensor if sequence_parallel else 1)
        return shared_bytes + self.split / tensor + self.gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A part of a model, and how often the model has it; all figures are those of one.

    Work and bytes are those of a token's forward pass.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    """Name: ``embedding``, ``block``, ``head``, or the model's own."""

    parameters: int
    """Parameters that the unit owns; a head that shares the embedding's weights does not own
    them."""

    trained: int
    """Parameters with a gradient: all, or the adapters'."""

    replicated: int
    """Parameters that every tensor-parallel rank has: norms, and biases after a row-wise split."""

    matmul_flops: float
    """Operations of products with weights: 2 for each weight that the token passes."""

    attention_flops: float
    """Operations of products of queries, keys and values over the whole sequence, without leaving
    any out for being causal: 4 × sequence × width of all heads."""

    elementwise_bytes: float
    """Bytes read and written by everything but matrix products."""

    kept: Mapping[Policy, ActivationBytes]
    output_bytes: float
    """Bytes passed to the next unit."""

    count: int = 1
    widest: int = 0
    """Weights of its largest matrix, gate and inner product being one; 0 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """A model, from its first unit to its last."""

    __pydantic_config__: ClassVar = STRICT
    units: tuple[Unit, ...]
    sequence: int
    """Tokens per sample (1 where a sample is not a sequence)."""

    logits: int
    """Numbers per token that the loss is taken of: the vocabulary's size."""

    tied: bool = False
    """True if the last unit also uses the first one's weights."""

    parameters: int = 0
    trained: int = 0
    matmul_flops: float = 0.0
    attention_flops: float = 0.0

    def __post_init__(self) -> None:
        for total in ("parameters", "trained", "matmul_flops", "attention_flops"):
            total_value = sum(getattr(unit, total) * unit.count for unit in self.units)
            object.__setattr__(self, total, total_value)


@dataclass(frozen=True, slots=True)
class Widths:
    """A block's inner widths, and everything else that its kept bytes depend on."""

    hidden: int
    heads: int
    queries: int
    keys: int
    ffn: int
    is_gated: bool
    is_biased: bool
    dropout: bool
    full_attention: bool
    sequence: int
    bytes: int
    megatron: bool
    torch_tensor: bool
    autocast: bool
    is_compiled: bool
    rank: int
    is_quantized: bool

    @property
    def linears(self) -> list[tuple[int, int]]:
        """(input width, output width) of each matrix that a token passes."""
        h, f = self.hidden, self.ffn
        return [
            *self.adapted_matrices,
            (h, self.keys),
            (self.queries, h),
            *[(h, f)] * (1 + self.is_gated),
            (f, h),
        ]

    @property
    def adapted_matrices(self) -> list[tuple[int, int]]:
        """Matrices that LoRA adds to: queries and values (Hu et al. 2021, section 4.2)."""
        return [(self.hidden, self.queries), (self.hidden, self.keys)]


def embedding(w: Widths, vocab: int, is_learned: bool) -> Unit:
    parameters = (vocab + is_learned * w.sequence) * w.hidden
    # The token's number, an int64, and a byte of dropout's mask for each value.
    activation = ActivationBytes(8 + w.dropout * w.hidden, 0)
    return Unit(
        name="embedding",
        parameters=parameters,
        trained=0 if w.rank else parameters,
        replicated=is_learned * w.sequence * w.hidden,
        matmul_flops=0,
        attention_flops=0,
        elementwise_bytes=2 * w.bytes * w.hidden,
        kept=dict.fromkeys(("none", "selective", "full"), activation),
        output_bytes=w.bytes * w.hidden,
    )


def head(w: Widths, vocab: int, tied: bool) -> Unit:
    """Return the last norm and the product with the vocabulary; memory counts the logits."""
    norm = w.hidden * (1 + w.is_biased)
    parameters = norm + (0 if tied else vocab * w.hidden)
    activation = ActivationBytes(w.bytes * w.hidden * (1 if w.is_compiled else 2), 0)
    return Unit(
        name="head",
        parameters=parameters,
        trained=0 if w.rank else parameters,
        replicated=norm,
        matmul_flops=2 * vocab * w.hidden,
        attention_flops=0,
        elementwise_bytes=2 * w.bytes * w.hidden + (w.bytes + 12) * vocab,
        kept=dict.fromkeys(("none", "selective", "full"), activation),
        output_bytes=w.bytes * vocab,
        widest=vocab * w.hidden,
    )


def block(w: Widths, layers: int) -> Unit:
    norms = 2 * w.hidden * (1 + w.is_biased)
    # Biases of the outputs of attention and feed-forward, which every tensor-parallel rank has.
    after = 2 * w.hidden * w.is_biased
    inside = (w.queries + 2 * w.keys + w.ffn * (1 + w.is_gated)) * w.is_biased
    matrices = sum(into * out for into, out in w.linears)
    adapters = w.rank * sum(into + out for into, out in w.adapted_matrices)
    parameters = matrices + norms + after + inside + adapters
    return Unit(
        name="block",
        count=layers,
        parameters=parameters,
        trained=adapters if w.rank else parameters,
        replicated=norms + after,
        matmul_flops=2 * (matrices + adapters),
        attention_flops=4 * w.sequence * w.queries,
        elementwise_bytes=_elementwise(w),
        kept={
            "none": _compute_activation(w),
            "selective": _compute_selective(w),
            "full": ActivationBytes(w.bytes * w.hidden, 0),
        },
        output_bytes=w.bytes * w.hidden,
        widest=w.hidden * w.ffn * (1 + w.is_gated),
    )


def _elementwise(w: Widths) -> float:
    """Return the bytes of norms, residual additions, rotation, activation, dropout; compiled,
    neighbours are fused.
    """
    stream = (2 * 2 + 2 * 3) * w.hidden * w.bytes
    rotary = 0 if w.is_biased else (w.queries + w.keys) * w.bytes * (2 if w.is_compiled else 6)
    passes = (3 if w.is_compiled else 5) if w.is_gated else 2
    inner = passes * w.ffn * w.bytes
    dropout = w.dropout * 2 * (2 * w.bytes + 1) * w.hidden
    scores = w.full_attention * w.heads * w.sequence * (2 * w.bytes + w.dropout * (2 * w.bytes + 1))
    return stream + rotary + inner + dropout + scores


def _compute_activation(w: Widths) -> ActivationBytes:
    """Return what the operators' backward passes read (Korthikanti et al. 2022, section 4.1, for
    GPT).

    Whole: input and output of both norms, masks of both dropouts. Split: queries, keys, values,
    the attention's output, the feed-forward part's inner values. Of those GPT's GELU keeps two,
    Llama's gate four (both products, SiLU's result, what goes down), three where Megatron fuses it
    (megatron/core/fusions/fused_bias_swiglu.py). Compiled, norms and what goes down are computed
    again. Torch's own models repeat keys and values for each head of queries, and where ranks share
    the sequence they keep what they have gathered of it; Megatron does neither. Under autocast
    the stream is float32.
    """
    input_bytes = 2 * (4 if w.autocast else w.bytes) * w.hidden + 2 * w.dropout * w.hidden
    norm_bytes = 2 * w.bytes * w.hidden
    inner = 2 if w.is_compiled or not w.is_gated else 4 - w.megatron
    fed = inner * w.bytes * w.ffn
    keys = w.keys if w.megatron else w.queries
    attention = w.bytes * (2 * w.queries + 2 * keys)
    whole_bytes = input_bytes + (0 if w.is_compiled or w.torch_tensor else norm_bytes)
    activation = ActivationBytes(
        whole_bytes, attention + fed + _scores(w), norm_bytes if w.torch_tensor else 0
    )
    return activation + _compute_adapters(w)


def _scores(w: Widths) -> float:
    """Return the bytes kept of attention's scores. Flash attention keeps a float32 per row of
    scores (Dao et al. 2022); full attention the probabilities and, with dropout, its mask and what
    it left: 5as in 16 bits.
    """
    if not w.full_attention:
        return 4 * w.heads
    return w.heads * w.sequence * (w.bytes + w.dropout * (w.bytes + 1))


def _compute_selective(w: Widths) -> ActivationBytes:
    """Return what is kept with selective recomputation.

    With full attention, all but the scores (Korthikanti et al. 2022, section 5). Else torchtitan's
    choice of operators: the block's input, attention's result, and every other one of the matrix
    products (queries, values, the first inner one; gated, what comes down, too). Each
    tensor-parallel rank keeps its whole summand of what comes down, and both sums.
    """
    if w.full_attention:
        return _compute_activation(w) + ActivationBytes(0, -_scores(w))
    stream, down = w.bytes * w.hidden, w.bytes * w.hidden * w.is_gated
    inner = w.bytes * (2 * w.queries + w.keys + w.ffn) + 4 * w.heads
    if w.torch_tensor:
        return ActivationBytes(3 * stream, inner, down)
    return ActivationBytes(stream + down, inner)


def _compute_adapters(w: Widths) -> ActivationBytes:
    """Return the difference in kept bytes: adapters keep more, and frozen weights less.

    More: what comes out of the first of an adapter's two matrices, dropout's copy of what goes in,
    and RMS norms in float32. Less: what goes into matrices whose gradient is not needed.
    """
    if not w.rank:
        return ActivationBytes(0, 0)
    inside = sum(
        w.rank * w.bytes + into * (w.bytes + 1) * w.dropout for into, _ in w.adapted_matrices
    )
    # RMS norms compute in float32, as PEFT's and litgpt's models have them.
    norms = 0 if w.is_compiled or not w.is_gated else 2 * (4 - w.bytes) * w.hidden
    # bitsandbytes' MatMul4Bit keeps what goes into its matrix all the same.
    if w.is_quantized:
        return ActivationBytes(inside + norms, 0)
    # The output of the second norm.
    between = 0 if w.is_compiled else w.bytes * w.hidden
    down = 0 if w.is_compiled and w.is_gated else w.bytes * w.ffn
    return ActivationBytes(inside + norms - between, -down)
