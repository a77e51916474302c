"""Restarts in place: torchrun's agent starts all ranks anew when one has ended. No torch here.

The agent restarts after any exit status but 0, ``PET_MAX_RESTARTS`` times. What would come again
(a wrong setting, a loss that is not finite, a stop that was asked for) is in the failure file by
then, and a restarted rank that finds it there ends at once with the same message.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainyard.common.errors import TrainingError


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which start of the ranks this is: 0 for the first, ``most`` for the last."""

    number: int
    most: int

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """As torchrun says it; the first and last one without torchrun."""
        number = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        return cls(int(number), int(environment.get("TORCHELASTIC_MAX_RESTARTS", number)))

    @property
    def another(self) -> bool:
        """Whether the ranks are started again after this."""
        return self.number < self.most


def refuse_what_failed(failure: Path) -> None:
    """End a restarted rank whose predecessors left a reason that a restart does not change.

    Raises:
        TrainingError: the reason, as it stands in the failure file.
    """
    if Attempt.read().number and failure.is_file():
        raise TrainingError(failure.read_text(encoding="utf-8"))
