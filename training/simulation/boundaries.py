"""What pipeline stages tell each other before the first step, where the others are not there."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.distributed.pipelining import schedules

from training.strategies import pipeline

Described = list[list[int]]
"""What the first stage takes and what it gives, as numbers: ``training.strategies.pipeline``."""


class Header(list):
    """The numbers that another stage would have sent as a tensor."""

    def tolist(self) -> list[int]:
        """The numbers, as of a tensor."""
        return list(self)


@contextmanager
def told(found: Described) -> Iterator[None]:
    """Inside, a stage hears from the one before what the first stage gives.

    Args:
        found: empty for the first stage's rank, which is simulated first and fills it; the other
            ranks take it from there, since between all stages lies the same stream.
    """
    described, receive = pipeline.described, pipeline.Pipeline._receive
    voted = schedules._PipelineSchedule._warmup_p2p

    def note(*tensors: Any, **trained: bool) -> list[int]:
        numbers = described(*tensors, **trained)
        if len(found) < 2:
            found.append(numbers)
        return numbers

    def received(self: pipeline.Pipeline, stage: int, metas: Sequence[Any]) -> Any:
        if [tuple(one.shape) for one in metas] == [(pipeline.HEADER,)]:
            return [Header(found[1])]
        return receive(self, stage, metas)

    pipeline.described, pipeline.Pipeline._receive = note, received
    schedules._PipelineSchedule._warmup_p2p = _vote
    try:
        yield
    finally:
        pipeline.described, pipeline.Pipeline._receive = described, receive
        schedules._PipelineSchedule._warmup_p2p = voted


def _vote(schedule: Any, stages: Sequence[Any], *_: Any) -> None:
    """What a pipeline's stages agree on: that each knows the shapes of what it gets.

    torch has them vote by sending numbers and reading them.
    """
    for stage in stages:
        stage._inference_mode = schedules.InferenceMode.STATIC
