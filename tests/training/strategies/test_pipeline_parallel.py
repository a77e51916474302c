"""The data sent between pipeline stages, and the settings of schedules.

``test_sizes`` compares each schedule with one process.
"""

import pytest
import torch

from training.config import TrainConfig
from training.strategies.pipeline_parallel import (
    HEADER,
    describe_tensors,
    make_meta_tensors,
    make_sendable,
)
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

BASE = {"max_steps": 4, "global_batch": 8, "micro_batch": 1, "learning_rate": 0.01}
TWO = {"pipeline_parallel": 2}


def test_what_goes_between_stages_is_told_in_numbers():
    sent = (torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64))
    numbers = describe_tensors(sent, requires_grad=True)
    assert len(numbers) == HEADER and all(isinstance(one, int) for one in numbers)
    for one, other in zip(sent, make_meta_tensors(numbers), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype) and other.is_meta
    assert [one.requires_grad for one in make_meta_tensors(numbers)] == [True, False]
    assert not make_meta_tensors(describe_tensors(sent, requires_grad=False))[0].requires_grad
    with pytest.raises(TrainingError, match="returns str: make those of Workload.stage"):
        describe_tensors(["text"], requires_grad=True)
    with pytest.raises(
        TrainingError, match="16 tensors, whose shapes take 65 numbers; at most 64 fit"
    ):
        describe_tensors([torch.zeros(1, 1)] * 16, requires_grad=True)
    assert make_sendable(torch.zeros(2, 3).T).is_contiguous()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pipeline_parallel": 1, "pipeline_schedule": "gpipe"}, "pipeline_parallel is 1"),
        ({"pipeline_schedule": "1f1b", "pipeline_stages_per_rank": 2}, "1f1b has 1 per rank"),
    ],
)
def test_what_a_schedule_cannot_do_is_refused(settings, expected):
    with pytest.raises(ValueError, match=expected):
        TrainConfig(**(BASE | TWO | settings))


def test_micro_batches_that_a_schedule_cannot_share_are_refused():
    settings = {"pipeline_parallel": 4, "pipeline_schedule": "interleaved_1f1b", "global_batch": 13}
    expected = "13 / 4 = 3 rounds, which are not equally large; use 12 or 16"
    with pytest.raises(ValueError, match=expected):
        TrainConfig(**(BASE | TWO | settings)).count_micro_batches(4)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pipeline_parallel": 1}, 1),
        ({}, 2),
        ({"pipeline_schedule": "interleaved_1f1b"}, 4),
        ({"pipeline_schedule": "interleaved_1f1b", "pipeline_stages_per_rank": 3}, 6),
    ],
)
def test_a_schedule_has_its_usual_number_of_stages_unless_the_recipe_sets_it(settings, expected):
    assert TrainConfig(**(BASE | TWO | settings)).stages == expected
