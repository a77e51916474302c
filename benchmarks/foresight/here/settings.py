"""The trainings that are predicted and measured: the language model, small, on one or two ranks."""

import random
from dataclasses import asdict, dataclass
from typing import Any, Literal

LAYOUTS = ("single", "ddp", "fsdp", "tensor", "pipeline")
TEST, CALIBRATION = 22, 1017
"""Seeds: of the settings that are predicted before they are measured, and of those that constants
are taken from."""

LARGEST = 1.2e11
"""Operations of a step, at most: about a second on one core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """One training; a data-parallel rank takes ``micro_batches`` of ``micro_batch`` samples."""

    layout: Literal["single", "ddp", "fsdp", "tensor", "pipeline"]
    layers: int
    dim: int
    heads: int
    context_length: int
    vocabulary: int
    micro_batch: int
    micro_batches: int
    precision: Literal["float32", "bfloat16"]
    recompute: Literal["none", "selective", "full"]

    @property
    def ranks(self) -> int:
        """Processes of one thread each."""
        return 1 if self.layout == "single" else 2

    @property
    def data_ranks(self) -> int:
        """Ranks with samples of their own."""
        return 2 if self.layout in ("ddp", "fsdp") else 1

    @property
    def weights(self) -> int:
        """About: 12 × layers × dim² and the embedding, which the head shares."""
        return 12 * self.layers * self.dim**2 + self.vocabulary * self.dim

    @property
    def operations(self) -> float:
        """About: 6 a weight and token of a step."""
        samples = self.micro_batch * self.micro_batches * self.data_ranks
        return 6.0 * self.weights * samples * self.context_length

    @property
    def model(self) -> dict[str, Any]:
        """The workload's settings."""
        names = ("layers", "dim", "heads", "context_length", "vocabulary")
        return {name: getattr(self, name) for name in names}

    def loop(self, steps: int) -> dict[str, Any]:
        """The training loop's settings, of so many steps, none of which validates or saves."""
        return {
            "strategy": self.layout if self.layout in ("single", "fsdp") else "ddp",
            "tensor_parallel": 2 if self.layout == "tensor" else 1,
            "pipeline_parallel": 2 if self.layout == "pipeline" else 1,
            "activation_checkpointing": self.recompute,
            "precision": self.precision,
            "micro_batch": self.micro_batch,
            "global_batch": self.micro_batch * self.micro_batches * self.data_ranks,
            "max_steps": steps,
            "learning_rate": 1e-4,
            "log_interval": 10**6,
            "validation_interval": 10**6,
            "checkpoint_interval": 10**6,
        }

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @property
    def name(self) -> str:
        """For people: ``fsdp l4 d256 s128 v257 b4×2 bfloat16 full``."""
        return (
            f"{self.layout} l{self.layers} d{self.dim} s{self.context_length} v{self.vocabulary} "
            f"b{self.micro_batch}×{self.micro_batches} {self.precision} {self.recompute}"
        )


def drawn(seed: int, count: int) -> list[Here]:
    """``count`` settings, as many of each layout; the same on every machine."""
    numbers = random.Random(seed)
    found: list[Here] = []
    while len(found) < count:
        one = _one(numbers, LAYOUTS[len(found) % len(LAYOUTS)])
        if one.operations <= LARGEST and one not in found:
            found.append(one)
    return found


def _one(numbers: random.Random, layout: Any) -> Here:
    dim = numbers.choice((64, 128, 192, 256, 384, 512))
    return Here(
        layout=layout,
        layers=numbers.randint(2, 8),
        dim=dim,
        heads=numbers.choice((2, 4, 8) if dim >= 128 else (2, 4)),
        context_length=numbers.choice((64, 128, 256)),
        vocabulary=numbers.choice((257, 2048, 8192)),
        micro_batch=numbers.choice((1, 2, 4, 8, 16)),
        micro_batches=numbers.choice((2, 4) if layout == "pipeline" else (1, 2)),
        precision=numbers.choice(("float32", "bfloat16")),
        recompute=numbers.choice(("none", "selective", "full")),
    )
