"""The train job beside the jobs of the other ranks."""

import re

import pytest

from tests.training.test_identity import of
from training.identity import Parts
from training.session import check_alike
from trainyard.common.errors import TrainingError


class Ranks:
    """Stand-in for three ranks that exchange their parts."""

    def __init__(self, *every: Parts) -> None:
        self._every = list(every)

    def gather(self, mine: Parts) -> list[Parts]:
        assert mine in self._every
        return self._every


def test_ranks_with_other_code_or_settings_are_named_before_the_first_step():
    same, changed = of(), of({"training/loop.py": b"another loop"}, seed=1)
    check_alike(same, Ranks(same, same, same))
    said = re.escape("rank 2 differs from rank 0: seed 0 → 1; code (~ training/loop.py); give all")
    with pytest.raises(TrainingError, match=said):
        check_alike(same, Ranks(same, same, changed))
