"""One training process: ``python -m training.tools.contract_tests.trial_rank PLAN``, a JSON file.

One process is started per rank that the plan's cases need, with the launcher's variables. The plan
has ``workload``, its ``settings``, the folder of its ``data``, the ``cases``, and ``out``: a JSON
file that each rank writes (the rank's number is appended to the name), ``Result`` by case.
"""

import hashlib
import json
import logging
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from training.checkpoint.checkpoints import Checkpoints
from training.config import TrainConfig
from training.export.weight_location import gather_weights
from training.loop import Loop
from training.strategies import start_strategy
from training.tools.contract_tests.contract import Trial, format_error, locate_error


@dataclass(frozen=True)
class Case:
    """One training run."""

    name: str
    config: dict[str, Any]
    folder: str
    """Folder of its checkpoints."""

    stop_at: int = 0
    """Step after which it is interrupted; 0: never."""

    port: int = 0


@dataclass
class Result:
    """Outcome of a training run."""

    losses: dict[int, float] = field(default_factory=dict)
    validation: dict[int, float] = field(default_factory=dict)
    weights: str = ""
    """SHA-256 of the trained model."""

    error: str = ""
    where: str = ""


def hash_weights(state: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of a model's state, independent of the order of its names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


class _TrainingInterrupt(Exception):
    pass


def main() -> None:
    """Run the plan's cases, and write this rank's results even if a case fails."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    logging.disable(logging.WARNING)
    trial = Trial(plan["workload"], plan["settings"], Path(plan["data"]))
    results: dict[str, Result] = {}
    try:
        for case in (Case(**fields) for fields in plan["cases"]):
            if case.port:
                os.environ["MASTER_PORT"] = str(case.port)
            results[case.name] = Result()
            try:
                _run_case(trial, case, results[case.name])
            except _TrainingInterrupt:
                pass
            except Exception as error:
                results[case.name].error = format_error(error)
                results[case.name].where = locate_error(error)
                raise
    finally:
        summary = {name: asdict(result) for name, result in results.items()}
        Path(plan["out"] + os.environ.get("RANK", "0")).write_text(json.dumps(summary))


def _run_case(trial: Trial, case: Case, result: Result) -> None:
    """Train as ``case`` says, and fill ``result`` with losses and the hash of the weights."""
    config = TrainConfig(**case.config)
    workload = trial.create_workload()
    with start_strategy(config, workload) as strategy:
        ranks, keep = strategy.ranks, config.keep_checkpoints
        checkpoints = Checkpoints(Path(case.folder), "trial", keep, ranks)

        def report(line: dict[str, float]) -> None:
            step = int(line["step"])
            if "loss" in line:
                result.losses[step] = line["loss"]
            if "validation_loss" in line:
                result.validation[step] = line["validation_loss"]
            if case.stop_at and step > case.stop_at:
                raise _TrainingInterrupt

        loop = Loop(config, workload, strategy, checkpoints, report)
        loop.train(trial.train, trial.validation)
        result.weights = hash_weights(gather_weights(strategy))


if __name__ == "__main__":
    main()
