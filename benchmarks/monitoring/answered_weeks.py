"""Weeks whose answers have truths: how often is the metric called worse, alone and with drift?"""

import numpy as np

from benchmarks.monitoring.weeks import answers
from pipelines.endpoint.answer_quality import OF_TRUTHS, RecordedQuality, change
from pipelines.endpoint.drift import Change
from training.scores import standard_error

EVALUATED, ANSWERED = 2000, 500
INDEPENDENT = "each on its own"
DEPENDENCE = {
    INDEPENDENT: (None, None),
    "of 50 groups": (200, 50),
    "of 7 groups": (200, 7),
}
"""How truths depend on each other → groups of the evaluation, and of the week."""
METRIC = "log_loss"


def quality(seed: int, kind: str, worse: bool) -> Change:
    """Return the metric's change in a week; evaluation and week are drawn anew."""
    before, now = DEPENDENCE[kind]
    losses, names = _losses(2 * seed, EVALUATED, False, before)
    pulls = (losses - losses.mean()) / len(losses)
    if names is not None:
        pulls = np.bincount(names, pulls)
    record = RecordedQuality("v", METRIC, True, float(losses.mean()), standard_error(pulls))
    losses, names = _losses(2 * seed + 1, ANSWERED, worse, now)
    return change(losses, None if names is None else [*names], record)


def _losses(
    seed: int, size: int, worse: bool, groups: int | None
) -> tuple[np.ndarray, np.ndarray | None]:
    probability, truth, names = answers(seed, size, worse, groups)
    return OF_TRUTHS[METRIC](probability, truth), names
