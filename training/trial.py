"""One training of a tuning: what it tried, and its loss on data that no validation has used."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.config import TrainConfig
from trainyard.common import atomic_file

FILE = "trial.json"


@dataclass(frozen=True, slots=True)
class Trial:
    """The file trial.json in the job's output data, which SageMaker keeps of a stopped job, too."""

    folder: Path
    config: TrainConfig
    workload_config: dict[str, Any]

    def begin(self) -> None:
        """Write the settings: a training that is stopped early leaves no more."""
        self._write({})

    def end(self, step: int, lines: list[dict[str, float]], held_out_loss: float) -> None:
        """Add the last validation loss in the metric ``lines``, and the one on held-out samples:
        each is a mean over the workload's units.
        """
        losses = [line["validation_loss"] for line in lines if "validation_loss" in line]
        self._write({"step": step, "validation_loss": losses[-1], "held_out_loss": held_out_loss})

    def _write(self, result: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        job = {"training_job": os.environ.get("TRAINING_JOB_NAME")}
        settings = {
            "settings": self.config.model_dump(mode="json"),
            "workload_config": self.workload_config,
        }
        record = {**job, **settings, **result}
        atomic_file.write(self.folder / FILE, json.dumps(record, indent=1))


def refuse_held_out(config: TrainConfig, samples: int, *, mixed: bool) -> str | None:
    """Return why samples cannot be held out; None if they can.

    Args:
        samples: size of the validation split.
        mixed: whether the data's inputs have weights.
    """
    if not config.held_out_samples:
        return None
    if mixed:
        return "held_out_samples: are not taken from several inputs with weights; set it to 0"
    if samples <= config.held_out_samples:
        return (
            f"held_out_samples: {config.held_out_samples} of the validation split's {samples} "
            "samples leave none to validate on; lower it (tune.held_out), or raise "
            "shard.validation_share"
        )
    return None
