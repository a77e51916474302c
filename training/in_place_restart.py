"""Restarts in place: torchrun's agent restarts all ranks when one has ended. No torch here.

The agent restarts after any exit status except 0, ``PET_MAX_RESTARTS`` times. So the failure file
decides: an error that would recur (a wrong setting, a loss that is not finite, a requested stop) is
written there, and a restarted rank that finds it ends at once with the same message.

This is a separate module because the job reads it before torch is imported.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainyard.common.errors import LostRankError, TrainingError, TrainyardError


@dataclass(frozen=True, slots=True)
class Attempt:
    """Number of this start of the ranks: 0 for the first, ``max_restarts`` for the last."""

    number: int
    max_restarts: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the attempt from torchrun's variables; without torchrun it is first and last."""
        number = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        return cls(int(number), int(environment.get("TORCHELASTIC_MAX_RESTARTS", number)))

    @property
    def will_restart(self) -> bool:
        """True if the ranks are restarted after this attempt ends."""
        return self.number < self.max_restarts

    def is_restarted_after(self, error: BaseException, has_stepped: bool = True) -> bool:
        """Return whether the ranks are restarted because of this error.

        A lost rank may come back; our other errors would recur. Any other exception would, too, if
        it came before the first step.
        """
        if isinstance(error, TrainyardError):
            return self.will_restart and isinstance(error, LostRankError)
        return self.will_restart and has_stepped


def refuse_failed_attempt(failure: Path) -> None:
    """Raise if the previous attempt failed for a reason that a restart cannot fix.

    Raises:
        TrainingError: the failure file exists; the message is its content.
    """
    if Attempt.from_environment().number and failure.is_file():
        raise TrainingError(failure.read_text(encoding="utf-8"))
