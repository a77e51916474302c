"""How much memory a training takes on the fullest of its GPUs, for what, and whether it fits.

Torch's peak is looked for at the moments at which it can come: the end of the forward pass, where
the loss is taken; the backward pass of the block that comes first in it; the optimizer's step; a
save. What is counted is the reserved maximum (``torch.cuda.max_memory_reserved``), which programs
print; the allocated one is less by the category ``reserve``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainyard.foresight import moments, stages
from trainyard.foresight import shapes as shapes_of
from trainyard.foresight.moments import When
from trainyard.foresight.setting import Setting
from trainyard.foresight.spread import Spread
from trainyard.foresight.stages import Stage
from trainyard.foresight.states import States, resident
from trainyard.foresight.units import Shapes

GIB = 2**30
STAYS = ("parameters", "gradients", "optimizer")
CATEGORIES = (
    *STAYS,
    "activations",
    "gathered",
    "logits",
    "buffers",
    "reserve",
)
"""What memory is for. gathered: whole weights and gradients of units that ranks share. buffers:
what a backward pass needs beside what was kept for it. reserve: what torch's caching allocator
holds beyond what is allocated."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted to published peaks."""

    reserve: float
    """Reserved beyond what is allocated, as a share of what comes and goes."""

    low: float
    """p10 over the median, of what comes and goes."""

    high: float
    """And p90."""

    worst: float
    """The most that was measured, over the median: what a training has to leave room for."""

    states: float
    """Half of the interval from p10 to p90 of what stays, as a share."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the fullest GPU has to hold, in GiB."""

    categories: Mapping[str, Spread]
    """What the peak consists of, by ``CATEGORIES``."""

    peak: Spread
    """Reserved maximum of torch's caching allocator."""

    when: When
    """forward is its end, where the loss is taken and its gradient begins."""

    stage: int
    """Pipeline rank that the peak is on."""

    fits: Literal["yes", "no", "unsure"]
    """yes: even with the worst error that was seen of a published peak; no: not even at p10."""

    host_gib: float
    """In the memory of each node's host."""

    usable_gib: float
    """What the device has for torch's allocator."""


CONTEXT_GIB = 0.6
"""CUDA's context and NCCL's buffers, which lie beside torch's allocator: chosen, not measured."""


def _read(path: Path) -> Constants:
    return Constants(**json.loads(path.read_text(encoding="utf-8"))["memory"])


CONSTANTS = _read(Path(__file__).with_name("constants.json"))


def foresee(
    setting: Setting, shapes: Shapes | None = None, constants: Constants = CONSTANTS
) -> Memory:
    """Memory of the fullest GPU of ``setting``.

    Args:
        shapes: the model's, where it is not the GPT or Llama that the setting's fields describe.
        constants: others than those of ``constants.json``.
    """
    model = shapes or shapes_of.of(setting)
    found: list[tuple[float, When, Stage, States, dict[str, float]]] = []
    for stage in stages.of(setting, model):
        states = resident(setting, stage)
        for when, moving in moments.of(setting, model, stage, states).items():
            held = _held(setting, states, moving, constants)
            found.append((sum(held.values()), when, stage, states, held))
    total, when, stage, states, held = max(found, key=lambda one: one[0])
    stays, c = sum(held[name] for name in STAYS), constants
    moves = total - stays
    peak = Spread(
        (stays * (1 - c.states) + moves * c.low) / GIB,
        total / GIB,
        (stays * (1 + c.states) + moves * c.high) / GIB,
    )
    return Memory(
        categories={name: _spread(name, held.get(name, 0.0), c) for name in CATEGORIES},
        peak=peak,
        when=when,
        stage=stage.number,
        fits=_verdict(setting, model, peak.p10, (stays * (1 + c.states) + moves * c.worst) / GIB),
        host_gib=states.host * setting.node_size / GIB,
        usable_gib=_usable(setting),
    )


def _spread(name: str, size: float, c: Constants) -> Spread:
    low, high = (1 - c.states, 1 + c.states) if name in STAYS else (c.low, c.high)
    return Spread.around(size / GIB, low, high)


def _held(
    setting: Setting, states: States, moving: Mapping[str, float], c: Constants
) -> dict[str, float]:
    """A moment's categories in bytes, with what stays and what the allocator holds beyond."""
    held = {"parameters": states.parameters, "optimizer": states.optimizer, **moving}
    held.setdefault("gradients", states.gradients)
    comes = sum(size for name, size in moving.items() if name != "gradients")
    # A shared gradient's pieces are too small for activations to be put where they were.
    apart = states.gradients - held["gradients"] if setting.shard == "full" else 0.0
    return held | {"reserve": c.reserve * comes + apart}


def _verdict(
    setting: Setting, model: Shapes, least: float, most: float
) -> Literal["yes", "no", "unsure"]:
    usable = _usable(setting)
    if least > usable:
        return "no"
    # PEFT on FSDP saves the whole model's weights unless it is told to save shards.
    whole = 2.0 * model.parameters / GIB if setting.lora_rank and setting.shard == "full" else 0.0
    return "yes" if max(most, whole) <= usable else "unsure"


def _usable(setting: Setting) -> float:
    return setting.device.memory_gib - CONTEXT_GIB
