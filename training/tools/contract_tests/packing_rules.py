"""Rules about how raw records become samples."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from training.data.dataset import Dataset
from training.tools.contract_tests.contract import CHECKOUT, SAMPLES, Fault, Trial, rule
from trainyard.common.errors import DataError

TWICE = ("sharded", "sharded-again")
SPLITS = ("train", "validation", "test")
NOT_OWN = ("frozen", "<string>", "site-packages")
TORCHLESS_SCRIPT = """
import sys
sys.modules["torch"] = None
from training.workloads import load_packing, parse_settings
load_packing(sys.argv[1], parse_settings(sys.argv[2]))
"""


def build_environment(seed: int) -> dict[str, str]:
    """Return the environment of a subprocess: the same Python path, with another seed of
    ``hash`` (and so another order of sets).
    """
    path = os.pathsep.join([str(CHECKOUT), *(folder or os.getcwd() for folder in sys.path)])
    return os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": str(seed), "OMP_NUM_THREADS": "1"}


def run_shard_jobs(
    name: str, settings: str, raw: Path, work: Path, *, folders: Sequence[str] = TWICE
) -> Mapping[str, str]:
    """Run one shard job per folder in ``work``, concurrently.

    Return a mapping of folder to the output of a job that failed, or to "" if it succeeded.
    """
    jobs = {}
    for seed, folder in enumerate(folders, 1):
        command = [
            *(sys.executable, "-m", "steps.shard.job", "--workload", name),
            *("--workload_config", settings, "--input", str(raw), "--output", str(work / folder)),
            *("--root", str(work / folder / "ml"), "--processes", "1", "--max_bad_share", "0.5"),
            *("--validation_share", "0.2", "--test_share", "0.2"),
        ]
        jobs[folder] = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=build_environment(seed),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    outputs = {folder: job.communicate()[0] for folder, job in jobs.items()}
    return {folder: "" if jobs[folder].returncode == 0 else outputs[folder] for folder in jobs}


@rule("imports", "the shard step imports it without torch", needs=())
def check_imports(trial: Trial) -> Iterator[Fault]:
    process = subprocess.run(
        [sys.executable, "-c", TORCHLESS_SCRIPT, trial.name, json.dumps(dict(trial.settings))],
        env=build_environment(0),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        frame_lines = [line.strip() for line in lines if line.strip().startswith("File ")]
        own_places = [line for line in frame_lines if not any(part in line for part in NOT_OWN)]
        torch = "torch" in lines[-1]
        yield Fault(
            lines[-1],
            own_places[-1].removeprefix("File ") if own_places else trial.name,
            "import torch inside the methods, and keep the network in a module of its own that "
            "model() imports"
            if torch
            else "fix the code that raised",
        )


@rule("shards", "the raw data become samples of all three splits", needs=())
def check_shards(trial: Trial) -> Iterator[Fault]:
    for split in SPLITS:
        try:
            dataset = Dataset(trial.folder / split)
        except DataError as error:
            yield Fault(str(error), split, "give more sample data, or complete its records")
            continue
        few = SAMPLES if split == "train" else 1
        if len(dataset) < few:
            yield Fault(
                f"the {split} split has {len(dataset)} samples, {few} are needed",
                split,
                "give more sample data: 100 records or more",
            )
    lines = [
        line
        for path in sorted((trial.folder / "quarantine").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    if lines:
        first = json.loads(lines[0])
        yield Fault(
            f"{len(lines)} records are bad; the first: {first['reason']}",
            f"{first['source']}:{first['line']}",
            "correct them, or the columns: required=False where a value may be missing",
        )


@rule("packing", "the same records become the same samples in another process", needs=("shards",))
def check_packing(trial: Trial) -> Iterator[Fault]:
    other = trial.folder.parent / TWICE[1]
    if not other.is_dir() or other == trial.folder:
        return
    kind = type(trial.shared_workload.packing)
    packing = f"{kind.__module__}: {kind.__name__}"
    for split in SPLITS:
        first, second = Dataset(trial.folder / split), Dataset(other / split)
        if first.fingerprint != second.fingerprint:
            yield Fault(
                f"the {split} split differs each time: {first.fingerprint}, {second.fingerprint}",
                packing,
                "do not iterate over a set, use hash() or draw random numbers: a sample may "
                "depend only on its records",
            )
            return
