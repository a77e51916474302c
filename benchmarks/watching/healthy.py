"""Trainings that nothing is wrong with, of as many settings as there are trainings."""

import random
from dataclasses import dataclass
from typing import Any

RATES = {"ragged": 0.01, "language_model": 0.003, "tabular": 0.01, "image": 0.003}
"""Workload → a learning rate that suits it, for AdamW."""


@dataclass(frozen=True)
class Case:
    """A training; ``resumed``: it is taken up again from the middle once it has ended."""

    name: str
    data: str
    world: int
    settings: dict[str, Any]
    resumed: bool = False


def cases(split: str, count: int) -> list[Case]:
    """The same for the same names; thresholds are looked for on another split than reported."""
    return [_case(split, number) for number in range(count)]


def _case(split: str, number: int) -> Case:
    choose = random.Random(f"{split} {number}")
    data = choose.choices(list(RATES), weights=(3, 4, 3, 1))[0]
    micro = choose.choice((4, 8, 16))
    world = 2 if number % 10 == 9 else 1
    steps = choose.choice((60, 100, 160, 240) if data != "image" else (50, 60))
    optimizer = choose.choices(("adamw", "lamb"), weights=(4, 1))[0]
    rate = RATES[data] * 10 ** choose.uniform(-1, 0.5)
    settings = {
        "strategy": choose.choice(("ddp", "fsdp")) if world > 1 else "single",
        "max_steps": steps,
        "micro_batch": micro,
        "global_batch": micro * world * choose.choice((1, 1, 2)),
        "learning_rate": rate,
        "optimizer": optimizer,
        "warmup_steps": choose.choice((0, 5, 20, steps // 4)),
        "schedule": choose.choice(("cosine", "wsd")),
        "min_learning_rate_ratio": choose.choice((0.0, 0.1)),
        "weight_decay": choose.choice((0.0, 0.1)),
        "grad_clip": choose.choice((0.5, 1.0, 10.0)),
        "precision": choose.choices(("float32", "bfloat16", "float64"), weights=(4, 4, 1))[0],
        "ema_decay": choose.choice((0.0, 0.0, 0.99)),
        "seed": choose.randrange(2**32),
        "log_interval": choose.choice((1, 1, 2, 5)),
        "validation_interval": choose.choice((20, 50)),
        "validation_samples": choose.choice((64, 200)),
        "checkpoint_interval": choose.choice((25, 50)),
        "shuffle": choose.choice(("uniform", "windowed")),
    }
    name = f"{split}-{number:03d}"
    return Case(name, data, world, settings, resumed=choose.random() < 0.25)
