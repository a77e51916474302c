r"""Compare the best trainings of a tuning on samples that none was validated on; choose one.

python steps/choose/job.py --names learning_rate weight_decay --completed 8 --stopped 2 \
    --inputs top0 top1 top2

Each input holds the output.tar.gz of a training, with its trial.json (``training.trial``). Output
``choice``: choice.json, and overlay.yaml, a recipe's fields with the chosen values.
"""

import argparse
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

from steps.job_main import run
from steps.workload_settings import PREFIX, as_hyperparameters
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

FILE = "trial.json"


def choose(options: argparse.Namespace) -> None:
    """Write choice.json and overlay.yaml.

    Raises:
        DataError: none of the trainings came to its end.
    """
    folders = [options.root / "processing/input" / name for name in options.inputs]
    found = [candidate(folder, options.names) for folder in folders]
    whole = [one for one in found if one["held_out_loss"] is not None]
    if not whole:
        raise DataError(
            f"none of the {len(found)} best trainings came to its last step, so none can be "
            "compared: raise tune.max_hours or tune.judged, or stop fewer of them early"
        )
    best = min(whole, key=lambda one: one["held_out_loss"])
    choice = {
        **best,
        "tried": options.completed + options.stopped,
        "stopped": options.stopped,
        "candidates": found,
    }
    output = options.root / "processing/output/choice"
    output.mkdir(parents=True, exist_ok=True)
    atomic_file.write(output / "overlay.yaml", overlay(best["settings"]))
    atomic_file.write(output / "choice.json", json.dumps(choice, indent=1, allow_nan=False))
    print(
        f"{best['training_job']}: held-out loss {best['held_out_loss']:.4f}, the best of "
        f"{len(whole)} of {choice['tried']} trainings",
        flush=True,
    )


def candidate(folder: Path, names: list[str]) -> dict[str, Any]:
    """Return what a training tried, and its losses; None where it was stopped before its end.

    ``values`` are strings, as the training job's hyperparameters; ``settings`` are typed.

    Raises:
        DataError: its output holds no trial.json.
    """
    archive = folder / "output.tar.gz"
    try:
        with tarfile.open(archive) as tar:
            member = tar.extractfile(FILE)
            trial = json.loads(member.read()) if member else None
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        raise DataError(f"{archive}: holds no {FILE}: {error!r}; run the tuning again") from None
    if not isinstance(trial, dict):
        raise DataError(f"{archive}: {FILE} is not a JSON object; run the tuning again")
    known = trial["settings"] | as_hyperparameters(trial.get("workload_config", {}))
    settings = {name: known[name] for name in names}
    return {
        "training_job": trial["training_job"],
        "settings": settings,
        "values": {name: str(value) for name, value in settings.items()},
        **{name: trial.get(name) for name in ("step", "validation_loss", "held_out_loss")},
    }


def overlay(settings: dict[str, Any]) -> str:
    """Return the chosen values as a recipe's fields."""
    places: dict[str, list[str]] = {}
    for name, value in settings.items():
        place = "workload:\n  config:" if name.startswith(PREFIX) else "train:\n  loop:"
        line = f"    {name.removeprefix(PREFIX)}: {json.dumps(value)}"
        places.setdefault(place, []).append(line)
    return "".join("\n".join([place, *lines, ""]) for place, lines in places.items())


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", nargs="+", required=True, help="hyperparameters that were tuned")
    parser.add_argument("--inputs", nargs="+", required=True, help="best trainings, best first")
    parser.add_argument("--completed", type=int, required=True, help="trainings that ended")
    parser.add_argument("--stopped", type=int, required=True, help="trainings stopped early")
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: choose(options), options.root / "output/message")


if __name__ == "__main__":
    main()
