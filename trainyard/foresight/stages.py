"""How a pipeline shares a model's units, and how many micro-batches a stage has begun at once."""

from dataclasses import dataclass

from trainyard.foresight.setting import Setting
from trainyard.foresight.units import Shapes, Unit


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline rank's part of a model."""

    number: int
    units: tuple[tuple[Unit, float], ...]
    """Each unit, and how many of it."""

    head: Unit | None
    """The model's last unit, on the last stage."""

    flight: float
    """Micro-batches whose forward pass has been made, and whose backward pass has not."""

    shared: int
    """Weights that the head takes from an embedding of another stage: a copy of them."""


def of(setting: Setting, model: Shapes) -> list[Stage]:
    """The stages that may be the fullest: the first, the second for those between, the last."""
    ranks = setting.pipeline
    if ranks == 1:
        units = tuple((unit, float(unit.count)) for unit in model.units)
        return [Stage(0, units, model.units[-1], 1.0, 0)]
    first, *inner, last = model.units
    numbers = [0, 1, ranks - 1] if ranks > 2 else [0, 1]
    stages = []
    for number in numbers:
        ends = [(first, 1.0)] * (number == 0) + [(last, 1.0)] * (number == ranks - 1)
        share = _share(setting, sum(unit.count for unit in inner), last=number == ranks - 1)
        blocks = tuple((unit, unit.count * share) for unit in inner)
        head = last if number == ranks - 1 else None
        shared = _embedded(model) if head and model.tied else 0
        stages.append(Stage(number, (*blocks, *ends), head, _flight(setting, number), shared))
    return stages


def _share(setting: Setting, blocks: int, *, last: bool) -> float:
    """Of the blocks, on a stage. What cannot be shared evenly is rounded up, and the last stage,
    which has the head, gets what is left."""
    chunks = setting.pipeline * setting.interleave
    each = -(-blocks // chunks) * setting.interleave
    left = blocks - each * (setting.pipeline - 1)
    if left < 0:
        return 1 / setting.pipeline
    return (left if last else each) / blocks


def _flight(setting: Setting, number: int) -> float:
    """1F1B: p − i micro-batches on stage i. Interleaved, a rank has begun 2(p − i − 1) + (v − 1)p
    + 1 of its parts, of which v make a micro-batch: on the first, 1 + (p − 1)/(pv) times p
    (Narayanan et al. 2021, section 2.2; Korthikanti et al. 2022, section 4.2.3)."""
    behind, parts = setting.pipeline - number - 1, setting.interleave
    if parts == 1:
        return float(min(behind + 1, setting.accumulation))
    begun = 2 * behind + (parts - 1) * setting.pipeline + 1
    return min(begun / parts, float(setting.accumulation))


def _embedded(model: Shapes) -> int:
    return model.units[-1].widest or model.units[0].parameters
