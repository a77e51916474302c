"""Restarts in place: torchrun's agent restarts all ranks when one has ended. No torch here.

The agent restarts after any exit status but 0, ``PET_MAX_RESTARTS`` times. An error that would
recur (a wrong setting, a loss that is not finite, a requested stop) is in the failure file
by then, and a restarted rank that finds it there ends at once with the same message.

Apart: the job reads it before torch is imported.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainyard.common.errors import TrainingError


@dataclass(frozen=True, slots=True)
class Attempt:
    """Number of this start of the ranks: 0 for the first, ``most`` for the last."""

    number: int
    most: int

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read it from torchrun's variables; without torchrun it is the first and last start."""
        number = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        return cls(int(number), int(environment.get("TORCHELASTIC_MAX_RESTARTS", number)))

    @property
    def another(self) -> bool:
        """True if the ranks are restarted after this attempt ends."""
        return self.number < self.most


def refuse_what_failed(failure: Path) -> None:
    """End a restarted rank if its predecessors failed for a reason that a restart does not change.

    Raises:
        TrainingError: the reason, as it stands in the failure file.
    """
    if Attempt.read().number and failure.is_file():
        raise TrainingError(failure.read_text(encoding="utf-8"))
