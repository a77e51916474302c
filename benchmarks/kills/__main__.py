"""Kill the sharding job at random moments, run it again, look for one wrong sample.

python -m benchmarks.kills [--runs 200] [--json FILE]

Every run begins with an empty output. One to three times the job is started and disturbed: SIGKILL
of it and its workers, of the job alone, of one worker, or a disk that fills up; half of the times a
file is then torn (cut off or garbled) that no manifest names. Then the job runs to its end, and the
dataset is compared, sample by sample, with that of an undisturbed run.
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
from benchmarks.kills.job import write_corpus
from benchmarks.kills.trial import Reference, Trial, namespaces, run


def main(
    runs: Annotated[int, typer.Option(min=1, help="Runs of the job, each disturbed.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the corpus and of every disturbance.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if one sample is wrong, missing or duplicated, or a run did not finish."""
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        reference, trials = _measure(Path(scratch), runs, seed)
    _print(reference, trials)
    keep(json_file, figures(reference, trials, seed))
    raise typer.Exit(1 if any(one.failed for one in trials) else 0)


def _measure(scratch: Path, runs: int, seed: int) -> tuple[Reference, list[Trial]]:
    write_corpus(scratch / "raw", seed)
    reference = Reference.measure(scratch / "raw", scratch / "undisturbed")

    def disturbed(number: int) -> Trial:
        folder = scratch / f"{number}"
        one = run(number, seed, scratch / "raw", folder, reference)
        shutil.rmtree(folder)
        return one

    return reference, harness.trials("kills", runs, disturbed, lambda one: one.failed)


def figures(reference: Reference, trials: list[Trial], seed: int) -> dict:
    """All that is known of the runs, as JSON."""
    totals: Counter[str] = Counter()
    for one in trials:
        totals.update(one.differences)
    return {
        "runs": len(trials),
        "seed": seed,
        "disturbances": dict(Counter(name for one in trials for name in one.disturbed)),
        "found_on_disk": dict(Counter(state for one in trials for state in one.states)),
        "torn_files": sum(len(one.torn) for one in trials),
        "disk_full_by": "tmpfs in a mount namespace" if namespaces() else "RLIMIT_FSIZE",
        "samples": {s: count.total() for s, count in reference.contents.samples.items()},
        "undisturbed_seconds": reference.seconds,
        "undisturbed_files": reference.files,
        "failed_runs": sum(one.failed for one in trials),
        "faults": [fault for one in trials for fault in one.faults],
        "differences": dict(totals),
        "trials": [asdict(one) for one in trials],
    }


def _print(reference: Reference, trials: list[Trial]) -> None:
    found = figures(reference, trials, 0)
    samples, seconds = sum(found["samples"].values()), reference.seconds
    print(
        f"Undisturbed: {samples:,} samples in {reference.files} files, {seconds:.1f} s. "
        f"Disk full by {found['disk_full_by']}."
    )
    names = ("wrong", "missing", "duplicated")
    sections = {
        "disturbed": found["disturbances"] | {"a torn file": found["torn_files"]},
        "then on the disk": found["found_on_disk"],
        "after the last run": {f"{name} samples": found["differences"].get(name, 0)
                               for name in names}
        | {"other fingerprints": found["differences"].get("fingerprints", 0),
           "runs with a fault": found["failed_runs"]},
    }  # fmt: skip
    harness.show_counts(f"{len(trials)} runs", sections)


if __name__ == "__main__":
    typer.run(main)
