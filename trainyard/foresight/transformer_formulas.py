"""Formulas for the parts of a transformer ("units"): parameters, operations, and the activations
that are kept for the backward pass, all per token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

Policy = Literal["none", "selective", "full"]

WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Mapping of the precision of the matrix products to the bytes per value of an activation. With
fp8, activations are kept in 16 bits and cast for the products."""

STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class ActivationBytes:
    """Bytes per token that a forward pass keeps for the backward pass."""

    __pydantic_config__: ClassVar = STRICT
    whole: float
    """Bytes that each tensor-parallel rank has in full, or split with sequence parallelism."""

    split: float
    """Bytes that are split over the tensor-parallel ranks."""

    gathered: float = 0.0
    """Bytes that each tensor-parallel rank has in full even with sequence parallelism."""

    def __add__(self, other: "ActivationBytes") -> "ActivationBytes":
        gathered_bytes = self.gathered + other.gathered
        return ActivationBytes(self.whole + other.whole, self.split + other.split, gathered_bytes)

    def compute_rank_bytes(self, tensor: int, *, sequence_parallel: bool) -> float:
        """Return the bytes per token on each of ``tensor`` tensor-parallel ranks."""
        shared_bytes = self.whole / (tensor if sequence_parallel else 1)
        return shared_bytes + self.split / tensor + self.gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A part of a model, and how often the model has it.

    All figures are for one such part; operations and bytes are those of a token's forward pass.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    """``embedding``, ``block``, ``head``, or the model's own name for it."""

    parameters: int
    """Number of parameters that the unit owns. A head that shares the embedding's weights does not
    own them."""

    trained: int
    """Number of parameters with a gradient: all, or those of adapters."""

    replicated: int
    """Number of parameters that every tensor-parallel rank has: norms, and biases after a row-wise
    split."""

    matmul_flops: float
    """Operations of products with weights: 2 for each weight that the token passes."""

    attention_flops: float
    """Operations of products of queries, keys and values over the whole sequence, including those
    that a causal mask would make unnecessary: 4 × sequence × width of all heads."""

    elementwise_bytes: float
    """Bytes that everything but matrix products reads and writes."""

    kept: Mapping[Policy, ActivationBytes]
    """Kept activations by recomputation policy."""

    output_bytes: float
    """Bytes that are passed to the next unit."""

    count: int = 1
    """Number of such units in the model."""

    widest: int = 0
    """Number of weights of its largest matrix, with gate and inner product counted as one matrix; 0
    if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """A model: its units from the first to the last, and their sums.

    The sums (``parameters`` and so on) are computed from the units.
    """

    __pydantic_config__: ClassVar = STRICT
    units: tuple[Unit, ...]
    sequence: int
    """Number of tokens per sample; 1 if a sample is not a sequence."""

    logits: int
    """Number of values per token from which the loss is computed: the vocabulary's size."""

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
    """Width of the queries of all heads."""

    keys: int
    """Width of the keys of all heads, and of the values."""

    ffn: int
    is_gated: bool
    is_biased: bool
    dropout: bool
    full_attention: bool
    sequence: int
    bytes: int
    """Bytes per value of an activation."""

    megatron: bool
    """True if the blocks are Megatron's, and not torch's own."""

    torch_tensor: bool
    """True for torch's own tensor parallelism, in which ranks keep what they have gathered."""

    autocast: bool
    is_compiled: bool
    rank: int
    """Rank of LoRA adapters; 0 without them."""

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
        """(input width, output width) of the matrices that get LoRA adapters: queries and values
        (Hu et al. 2021, section 4.2).
        """
        return [(self.hidden, self.queries), (self.hidden, self.keys)]


def build_embedding(w: Widths, vocab: int, is_learned: bool) -> Unit:
    """Return the embedding of tokens and, if ``is_learned``, of positions."""
    parameters = (vocab + is_learned * w.sequence) * w.hidden
    # Kept are the token's number (an int64), and one byte per value for dropout's mask.
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


def build_head(w: Widths, vocab: int, tied: bool) -> Unit:
    """Return the last norm and the product with the vocabulary.

    Kept activations are without the logits, which ``memory`` counts.
    """
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


def build_block_unit(w: Widths, layers: int) -> Unit:
    """Return the transformer block, of which the model has ``layers``."""
    norms = 2 * w.hidden * (1 + w.is_biased)
    # These are the biases of attention's and the feed-forward part's outputs, which every
    # tensor-parallel rank has.
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
        elementwise_bytes=_count_elementwise_bytes(w),
        kept={
            "none": _compute_activation(w),
            "selective": _compute_selective_activation(w),
            "full": ActivationBytes(w.bytes * w.hidden, 0),
        },
        output_bytes=w.bytes * w.hidden,
        widest=w.hidden * w.ffn * (1 + w.is_gated),
    )


def _count_elementwise_bytes(w: Widths) -> float:
    """Return the bytes that a block's norms, residual additions, rotary encoding, activation
    function, dropout and scores read and write. In a compiled model, neighbouring ones are fused.
    """
    stream = (2 * 2 + 2 * 3) * w.hidden * w.bytes
    rotary = 0 if w.is_biased else (w.queries + w.keys) * w.bytes * (2 if w.is_compiled else 6)
    passes = (3 if w.is_compiled else 5) if w.is_gated else 2
    inner = passes * w.ffn * w.bytes
    dropout = w.dropout * 2 * (2 * w.bytes + 1) * w.hidden
    scores = w.full_attention * w.heads * w.sequence * (2 * w.bytes + w.dropout * (2 * w.bytes + 1))
    return stream + rotary + inner + dropout + scores


def _compute_activation(w: Widths) -> ActivationBytes:
    """Return what a block keeps without recomputation: what the operators' backward passes read
    (Korthikanti et al. 2022, section 4.1, for GPT).

    Whole are the inputs and outputs of both norms, and the masks of both dropouts. Split are
    queries, keys, values, attention's output, and the inner values of the feed-forward part. Of
    these inner values, GPT's GELU keeps two, and Llama's gate four (both products, SiLU's result,
    the input of the last matrix), or three if Megatron fuses it
    (megatron/core/fusions/fused_bias_swiglu.py). A compiled model computes the norms and the input
    of the last matrix again. Torch's own models repeat keys and values for each head of queries,
    and with sequence parallelism they keep what they have gathered; Megatron does neither. Under
    autocast, the residual stream is in float32.
    """
    input_bytes = 2 * (4 if w.autocast else w.bytes) * w.hidden + 2 * w.dropout * w.hidden
    norm_bytes = 2 * w.bytes * w.hidden
    inner = 2 if w.is_compiled or not w.is_gated else 4 - w.megatron
    fed = inner * w.bytes * w.ffn
    keys = w.keys if w.megatron else w.queries
    attention = w.bytes * (2 * w.queries + 2 * keys)
    whole_bytes = input_bytes + (0 if w.is_compiled or w.torch_tensor else norm_bytes)
    activation = ActivationBytes(
        whole_bytes, attention + fed + _count_score_bytes(w), norm_bytes if w.torch_tensor else 0
    )
    return activation + _compute_adapter_difference(w)


def _count_score_bytes(w: Widths) -> float:
    """Return the bytes that are kept of attention's scores.

    Flash attention keeps one float32 per row of scores (Dao et al. 2022). Full attention keeps the
    probabilities and, with dropout, its mask and its result: in 16 bits 5·a·s bytes, for a heads
    and a sequence of s tokens.
    """
    if not w.full_attention:
        return 4 * w.heads
    return w.heads * w.sequence * (w.bytes + w.dropout * (w.bytes + 1))


def _compute_selective_activation(w: Widths) -> ActivationBytes:
    """Return what a block keeps with selective recomputation.

    With full attention, this is everything but the scores (Korthikanti et al. 2022, section 5).
    Else it is torchtitan's choice of operators: the block's input, attention's result, and the
    results of every other matrix product (queries, values, the first inner one; if gated, also the
    last one). With torch's tensor parallelism, each rank keeps its whole summand of the last
    product, and both sums.
    """
    if w.full_attention:
        return _compute_activation(w) + ActivationBytes(0, -_count_score_bytes(w))
    stream, down = w.bytes * w.hidden, w.bytes * w.hidden * w.is_gated
    inner = w.bytes * (2 * w.queries + w.keys + w.ffn) + 4 * w.heads
    if w.torch_tensor:
        return ActivationBytes(3 * stream, inner, down)
    return ActivationBytes(stream + down, inner)


def _compute_adapter_difference(w: Widths) -> ActivationBytes:
    """Return the difference in kept bytes that LoRA makes: adapters keep more, frozen weights less.

    LoRA also keeps the output of the first of an adapter's two matrices, the adapter's input after
    dropout with its mask (a byte an element), and RMS norms in float32. It does not keep the inputs
    of matrices that need no gradient.
    """
    if not w.rank:
        return ActivationBytes(0, 0)
    inside = sum(
        w.rank * w.bytes + into * (w.bytes + 1) * w.dropout for into, _ in w.adapted_matrices
    )
    # RMS norms compute in float32, as in PEFT's and litgpt's models.
    norms = 0 if w.is_compiled or not w.is_gated else 2 * (4 - w.bytes) * w.hidden
    # bitsandbytes' MatMul4Bit keeps its input although the weight is frozen.
    if w.is_quantized:
        return ActivationBytes(inside + norms, 0)
    # It does not keep the output of the second norm, nor the input of the last matrix.
    between = 0 if w.is_compiled else w.bytes * w.hidden
    down = 0 if w.is_compiled and w.is_gated else w.bytes * w.ffn
    return ActivationBytes(inside + norms - between, -down)
