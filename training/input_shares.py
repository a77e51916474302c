"""How much of each input a training run reads, and from which step on. No torch here.

A weight is relative to the other weights, and gives the input's share of the samples. For the
language model, whose samples all have the same number of tokens, it is also the share of the
tokens.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from training.config import parse_hyperparameter

PARTS = 1 << 16
"""Largest sum of the whole numbers into which weights are converted; it is the length of the
table that ``training.data.mixture.build_input_schedule`` makes of them.
"""

Weight = Annotated[FiniteFloat, Field(gt=0)]
Weights = dict[str, Weight]


class Change(BaseModel):
    """A change of the weights at a step."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    step: int = Field(ge=1)
    """Optimizer steps before the weights change."""

    weights: Weights = Field(min_length=1)
    """Input → weight from then on; an input that is left out gives no samples."""

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        check_weights(self.weights, f"weights after step {self.step}")
        return self


class Mixture(BaseModel):
    """The weights of the inputs over the whole training."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    weights: Weights = Field(min_length=1)
    """Input → weight from the first step on; an input that is left out gives no samples."""

    changes: tuple[Change, ...] = ()
    """Changes of the weights, in the order of their steps."""

    @property
    def phases(self) -> list[tuple[int, dict[str, int]]]:
        """(first optimizer step, from 0; mapping of input to its whole-number share) of each
        phase.
        """
        starts = [(0, self.weights), *((change.step, change.weights) for change in self.changes)]
        return [(step, to_whole_number_shares(weights)) for step, weights in starts]

    @property
    def names(self) -> list[str]:
        """Names of all inputs that are read in any phase."""
        return sorted({name for _, shares in self.phases for name in shares})

    @model_validator(mode="after")
    def _check_weights_and_changes(self) -> Self:
        check_weights(self.weights, "weights")
        check_steps(self.changes, "changes")
        return self


def check_weights(weights: Mapping[str, float], label: str) -> None:
    """Check that each weight is large enough to be represented.

    Raises:
        ValueError: a weight is less than 1 / PARTS of the sum.
    """
    exact = _to_exact_fractions(weights)
    total = sum(exact.values())
    for name, weight in exact.items():
        if weight * PARTS < total:
            raise ValueError(
                f"{label}: {name} has {weights[name]:g}, less than one sample in {PARTS:,}; "
                "raise it, or leave the input out"
            )


def check_steps(changes: Sequence[Change], label: str) -> None:
    """Check the order of the changes.

    Raises:
        ValueError: the changes are not in ascending order, or two are at the same step.
    """
    steps = [change.step for change in changes]
    if steps != sorted(set(steps)):
        raise ValueError(f"{label}: their steps {steps} do not ascend; put them in order")


def to_whole_number_shares(weights: Mapping[str, float]) -> dict[str, int]:
    """Return the weights as whole numbers whose sum is at most ``PARTS``, by name.

    If the weights have such a ratio, the result is the reduced ratio: 0.7, 0.2, 0.1 become 7, 2, 1.
    Otherwise each weight is rounded down or up to ``PARTS``-ths of the sum, by the largest
    remainder (Hamilton's method of apportionment).
    """
    exact = _to_exact_fractions(weights)
    common = math.lcm(*(fraction.denominator for fraction in exact.values()))
    integers = {name: int(fraction * common) for name, fraction in exact.items()}
    ratio = {name: number // math.gcd(*integers.values()) for name, number in integers.items()}
    total = sum(ratio.values())
    if total <= PARTS:
        return ratio
    shares = {name: divmod(number * PARTS, total) for name, number in ratio.items()}
    remainder = PARTS - sum(share for share, _ in shares.values())
    upwards = sorted(shares, key=lambda name: (-shares[name][1], name))[:remainder]
    return {name: share + (name in upwards) for name, (share, _) in shares.items()}


def _to_exact_fractions(weights: Mapping[str, float]) -> dict[str, Fraction]:
    """Return the weights as exact fractions of their decimal notation, by name."""
    return {name: Fraction(repr(float(weights[name]))) for name in sorted(weights)}


def parse_mixture(text: str) -> Mixture | None:
    """Parse the hyperparameter ``mixture``; return None if it is empty: a run on one input."""
    return parse_hyperparameter(Mixture, "mixture", text) if text else None


def list_identity_shares(mixture: Mixture | None) -> list[dict[str, Any]] | None:
    """Return the mixture's part of the training's identity: the shares, not the weights as written.

    Return None without a mixture.
    """
    if mixture is None:
        return None
    return [{"step": step, "shares": shares} for step, shares in mixture.phases]
