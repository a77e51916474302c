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
from typing import Annotated, Any

import typer

from benchmarks.harness import JsonFile, show_table, track_steps, write_json
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
        trials = run_all_trials(Path(scratch), runs, world, seed)
    found = summarize_trials(trials)
    show_table((f"{runs} runs of {STEPS} steps, interval {INTERVAL}", ""), found.items())
    write_json(json_file, found | {"seed": seed, "trials": [asdict(one) for one in trials]})
    raise typer.Exit(1 if found["runs with a fault"] else 0)


def run_all_trials(scratch: Path, runs: int, worlds: list[int], seed: int) -> list[Trial]:
    """Run all trials, each in its own folder, which is deleted afterwards; return them."""
    write_data(scratch / "data", seed)
    references = References(scratch / "data", scratch / "undisturbed")
    found = []
    for number in track_steps("interrupted trainings", range(runs)):
        folder = scratch / f"{number}"
        found.append(trial.run_trial(number, seed, scratch / "data", folder, references, worlds))
        shutil.rmtree(folder)
        if found[-1].faults:
            print(f"run {number}: {found[-1]}", flush=True)
    return found


def summarize_trials(trials: list[Trial]) -> dict[str, Any]:
    """Return what was done to the runs, and what came of it: counts, largest losses and errors."""
    resumes = [resume for one in trials for resume in one.resumes]
    same, other = ([one for one in trials if one.bitwise == kind] for kind in (True, False))
    lost: dict[str, int] = {}
    for one in resumes:
        kind = f"most steps lost, {'torn on purpose' if one.torn else one.disturbance}"
        lost[kind] = max(lost.get(kind, 0), one.lost)
    return {
        **Counter(one.disturbance for one in resumes),
        **Counter(f"then torn on purpose: {one.torn}" for one in resumes if one.torn),
        "a write was unfinished": sum(one.unfinished for one in resumes),
        "went on with another layout": sum(one.before != one.after for one in resumes),
        **lost,
        "losses compared": sum(one.compared for one in trials),
        "runs of one layout": len(same),
        "largest error of one layout": max((one.error for one in same), default=0.0),
        "runs of several layouts": len(other),
        "largest error of several layouts": max((one.error for one in other), default=0.0),
        "runs with a fault": sum(bool(one.faults) for one in trials),
    }


if __name__ == "__main__":
    typer.run(main)
