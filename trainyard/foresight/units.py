"""A model's parts, and what memory and time need to know of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

Policy = Literal["none", "selective", "full"]

WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Bytes of an activation by the precision of the products; fp8 casts what is kept in 16 bits."""

STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes for a token that a forward pass leaves for the backward pass."""

    __pydantic_config__: ClassVar = STRICT
    whole: float
    """What each tensor-parallel rank has all of, unless they share the sequence, too."""

    split: float
    """What tensor-parallel ranks share."""

    gathered: float = 0.0
    """What each has all of, although they share the sequence."""

    def __add__(self, other: "Kept") -> "Kept":
        gathered = self.gathered + other.gathered
        return Kept(self.whole + other.whole, self.split + other.split, gathered)

    def on(self, tensor: int, *, sequence_parallel: bool) -> float:
        """Bytes for a token on each of ``tensor`` ranks."""
        shared = self.whole / (tensor if sequence_parallel else 1)
        return shared + self.split / tensor + self.gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One part of a model, and how often the model has it; all figures are those of one.

    Work and bytes are those of a token's forward pass.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    """``embedding``, ``block``, ``head``, or as the model calls it."""

    parameters: int
    """All that the unit owns; a head that shares the embedding's weights does not own them."""

    trained: int
    """Parameters with a gradient: all, or the adapters'."""

    replicated: int
    """Parameters that every tensor-parallel rank has: norms, and biases after a row-wise split."""

    matmul_flops: float
    """Of products with weights: 2 for each weight that the token passes."""

    attention_flops: float
    """Of products of queries, keys and values over the whole sequence, none left out for being
    causal: 4 × sequence × width of all heads."""

    elementwise_bytes: float
    """Read and written by all that is not a matrix product."""

    kept: Mapping[Policy, Kept]
    output_bytes: float
    """What the next unit is given."""

    count: int = 1
    widest: int = 0
    """Weights of its largest matrix, gate and inner product being one; 0 where nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """A model, from its first unit to its last."""

    __pydantic_config__: ClassVar = STRICT
    units: tuple[Unit, ...]
    sequence: int
    """Tokens of a sample (1 where a sample is no sequence)."""

    logits: int
    """Numbers for a token that the loss is taken of: the vocabulary's size."""

    tied: bool = False
    """Whether the last unit also uses the first one's weights."""

    parameters: int = 0
    trained: int = 0
    matmul_flops: float = 0.0
    attention_flops: float = 0.0

    def __post_init__(self) -> None:
        for total in ("parameters", "trained", "matmul_flops", "attention_flops"):
            found = sum(getattr(unit, total) * unit.count for unit in self.units)
            object.__setattr__(self, total, found)

    @property
    def largest(self) -> Unit:
        """The unit with the most parameters."""
        return max(self.units, key=lambda unit: unit.parameters)
