"""Interrupt a training at random steps, resume it, compare the whole loss curve.

python -m benchmarks.interruptions [--runs 50] [--world 2 --world 4] [--seed 0] [--json FILE]

Each run trains a small language model and is interrupted once or twice at a random step: SIGKILL of
a rank, SIGTERM or SIGKILL of the whole node, SIGKILL while a checkpoint is written. Then the newest
checkpoint may be torn (cut off, a bit flipped, a file or the marker deleted), and the training goes
on, sometimes with another world size or strategy. Its curve has to be the undisturbed one's: bit by
bit with the same ranks and strategy, within 1e-5 otherwise.
"""

import shutil
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import harness
from benchmarks.harness import JsonFile, keep
from benchmarks.interruptions import trial
from benchmarks.interruptions.training import INTERVAL, STEPS, write_data
from benchmarks.interruptions.trial import References, Trial


def main(
    runs: Annotated[int, typer.Option(min=1, help="Trainings, each interrupted.")] = 50,
    world: Annotated[list[int], typer.Option(min=1, help="Ranks; give it several times.")] = [2, 4],  # noqa: B006
    seed: Annotated[int, typer.Option(help="Of the data and of every interruption.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if a curve differs, a torn checkpoint was resumed, or too much was lost."""
    with tempfile.TemporaryDirectory(prefix="interruptions-") as scratch:
        trials = measure(Path(scratch), runs, world, seed)
    found = figures(trials, seed)
    _print(found)
    keep(json_file, found | {"trials": [asdict(one) for one in trials]})
    raise typer.Exit(1 if found["failed_runs"] else 0)


def measure(scratch: Path, runs: int, worlds: list[int], seed: int) -> list[Trial]:
    """Every run in a folder of its own, which is deleted afterwards."""
    write_data(scratch / "data", seed)
    references = References(scratch / "data", scratch / "undisturbed")

    def interrupted(number: int) -> Trial:
        folder = scratch / f"{number}"
        one = trial.run(number, seed, scratch / "data", folder, references, worlds)
        shutil.rmtree(folder)
        return one

    return harness.trials("interruptions", runs, interrupted, lambda one: one.faults)


def figures(trials: list[Trial], seed: int) -> dict:
    """All that is known of the runs, as JSON."""
    resumes = [resume for one in trials for resume in one.resumes]
    bitwise = [one for one in trials if one.bitwise]
    other = [one for one in trials if not one.bitwise]
    return {
        "runs": len(trials),
        "seed": seed,
        "steps": STEPS,
        "checkpoint_interval": INTERVAL,
        "disturbances": dict(Counter(one.disturbance for one in resumes)),
        "torn_on_purpose": dict(Counter(one.torn for one in resumes if one.torn)),
        "killed_during_a_write": sum(one.unfinished for one in resumes),
        "goes_on_with": {
            "the same layout": sum(one.before == one.after for one in resumes),
            "another world size": sum(one.before.world != one.after.world for one in resumes),
            "another strategy": sum(one.before.strategy != one.after.strategy for one in resumes),
        },
        "most_steps_lost": {
            name: max((one.lost for one in resumes if _kind(one) == name), default=None)
            for name in ("SIGTERM", "killed", "killed during a write", "torn on purpose")
        },
        "losses_compared": sum(one.compared for one in trials),
        "runs_of_one_layout": len(bitwise),
        "largest_error_of_one_layout": max((one.error for one in bitwise), default=0.0),
        "runs_of_several_layouts": len(other),
        "largest_error_of_several_layouts": max((one.error for one in other), default=0.0),
        "failed_runs": sum(bool(one.faults) for one in trials),
        "faults": [fault for one in trials for fault in one.faults],
    }


def _kind(resume: trial.Resume) -> str:
    if resume.torn:
        return "torn on purpose"
    if resume.disturbance == trial.STOP:
        return "SIGTERM"
    return "killed during a write" if resume.unfinished else "killed"


def _print(found: dict) -> None:
    sections = {
        "interrupted by": found["disturbances"]
        | {"(a write was unfinished)": found["killed_during_a_write"]},
        "then torn on purpose": found["torn_on_purpose"],
        "went on with": found["goes_on_with"],
        f"most steps lost (interval {INTERVAL})": found["most_steps_lost"],
        "the loss curve": {
            "losses compared": found["losses_compared"],
            "runs of one layout": found["runs_of_one_layout"],
            "  largest relative error": f"{found['largest_error_of_one_layout']:.1e}",
            "runs of several layouts": found["runs_of_several_layouts"],
            "  largest relative error ": f"{found['largest_error_of_several_layouts']:.1e}",
            "runs with a fault": found["failed_runs"],
        },
    }
    harness.show_counts(f"{found['runs']} runs of {STEPS} steps", sections)


if __name__ == "__main__":
    typer.run(main)
