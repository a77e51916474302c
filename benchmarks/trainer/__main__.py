"""Train with others' loops on our shards: losses beside our loop's, and kills.

python -m benchmarks.trainer [--only losses|kills] [--quick] [--json FILE]

losses: Hugging Face's Trainer beside the native loop, over the same module, shards and weights, in
one process and in two: the largest relative difference of any step's loss. float32 has to agree
within 1e-6 where both loops add up in the same order. Where they do not, only rounding may differ,
so there float64 has to agree within 1e-12: an error in samples, weights or means would be as large
in it as in float32.
kills: Trainer, Accelerate and Lightning, killed at random steps and started again; the final
weights have to be the uninterrupted training's, bit for bit.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import CHECKOUT, JsonFile, Trial, exit_with, run_trials
from benchmarks.trainer.loops import (
    LOOPS,
    MICRO,
    Loop,
    LoopFailed,
    is_same_model,
    read_trainer_losses,
    run_script,
    train_with_kills,
)
from training.data.shard_writer import write_dataset
from training.workloads import load_packing

MODEL = {"context_length": 64, "layers": 2, "heads": 4, "dim": 128}
SAMPLES = 1000
OUR_MODULE = Path(__file__).parent / "with_our_module.py"
BATCH = 16
"""Samples of an optimizer step over all ranks."""
WORLDS = (1, 2)
TRAINERS = ("--learning_rate=0.003", "--weight_decay=0.1", "--adam_beta1=0.9", "--adam_beta2=0.95",
            "--max_grad_norm=1.0", "--seed=0")  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """How the ranks share a step's samples, and the type that everything is computed in.

    Accelerate deals the micro-batches out to the ranks in turn; our loop gives each rank a
    contiguous piece of the batch. So with more ranks than one, and more micro-batches a rank than
    one, the same gradients are added up in another order.
    """

    world: int = 1
    micro: int = MICRO
    precision: str = "float32"

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of a rank in a step."""
        return BATCH // (self.micro * self.world)

    def __str__(self) -> str:
        shared = f"{self.world} × {self.accumulation_steps} micro-batches of {self.micro}"
        return f"{shared}, {self.precision}"


LIMITS: dict[Setting, float | None] = {
    Setting(): 1e-6,
    Setting(world=2, micro=BATCH // 2): 1e-6,  # the same samples in both loops, so the same sums
    Setting(world=2): None,  # the same in float64 is held to a limit instead
    Setting(precision="float64"): 1e-12,
    Setting(world=2, precision="float64"): 1e-12,
}
"""The largest relative difference of a loss that the native module may have in the Trainer."""


def make_native_settings(steps: int, setting: Setting) -> dict[str, Any]:
    """Return the native loop's settings that equal the Trainer's linear schedule and AdamW.

    With ``wsd``, all of it decay to 1/steps of the peak, step n has 1 - n/steps of the peak, which
    is the Trainer's default.
    """
    return {
        **{"strategy": "ddp", "max_steps": steps, "global_batch": BATCH, "seed": 0},
        **{"micro_batch": setting.micro, "precision": setting.precision, "log_interval": 1},
        **{"learning_rate": 0.003, "schedule": "wsd", "decay_share": 1.0},
        **{"min_learning_rate_ratio": 1 / steps, "weight_decay": 0.1, "grad_clip": 1.0},
        **{"beta1": 0.9, "beta2": 0.95},
    }


def write_data(folder: Path) -> None:
    """Write the standard library's sources as bytes, in two splits; some samples have padding."""
    import pyarrow as pa

    from benchmarks.shards.corpus import read_standard_library

    packing = load_packing("language_model", MODEL)
    texts = pa.RecordBatch.from_pydict({"text": [t for t in read_standard_library(200_000) if t]})
    rows = packing.packer().add(texts)["tokens"][: SAMPLES - 1].copy()
    for index in range(0, len(rows), 10):  # ragged: a mean of means would be another loss
        rows[index, index % 60 + 2 :] = packing.tokenizer.end
    for split, part in (("train", rows), ("validation", rows[:20])):
        options = {"shard_bytes": 20_000, "split": split, "workload": packing.info}
        write_dataset(folder / split, {"tokens": part}, packing.fields, **options)


def train_natively(data: Path, out: Path, steps: int, setting: Setting) -> dict[int, float]:
    """Train by the train job; return step → loss."""
    (out / "input").mkdir(parents=True)
    (out / "input/data").symlink_to(data)
    flags = [f"--{name}={value}" for name, value in make_native_settings(steps, setting).items()]
    flags += ["--workload=language_model", f"--workload_config={json.dumps(MODEL)}"]
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={setting.world}", "--standalone"]
    own = {"PYTHONPATH": ".", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, *launcher, "steps/train/job.py", f"--root={out}", *flags]
    done = subprocess.run(command, cwd=CHECKOUT, env=os.environ | own, capture_output=True,
                          text=True, check=False)  # fmt: skip
    if done.returncode:
        raise LoopFailed(done.stdout[-1000:] + done.stderr[-1000:])
    [history] = out.glob("checkpoints/*/history.jsonl")
    lines = map(json.loads, history.read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def compare_losses(root: Path, steps: int, setting: Setting, limit: float | None) -> str:
    """Train by both loops; return by how much the Trainer's losses exceed the limit, or ""."""
    name = str(setting).replace(" ", "-")
    ours = train_natively(root / "data", root / f"native-{name}", steps, setting)
    out = root / f"trainer-{name}"
    arguments = [*LOOPS[0].make_arguments(steps, steps, out / "checkpoints"), *TRAINERS]
    arguments += [f"--per_device_train_batch_size={setting.micro}",
                  f"--gradient_accumulation_steps={setting.accumulation_steps}",
                  f"--precision={setting.precision}"]  # fmt: skip
    run_script(str(OUR_MODULE), arguments, root / "data", out, setting.world)
    theirs = read_trainer_losses(out)
    assert theirs.keys() == ours.keys(), f"steps {sorted(theirs)} and {sorted(ours)}"
    off = max(abs(theirs[step] / loss - 1) for step, loss in ours.items())
    print(f"{setting}: off by {off:.1e} at most{f', of {limit:.0e} allowed' if limit else ''}")
    return f"off by {off:.1e}" if limit is not None and off > limit else ""


def compare_killed_training(root: Path, loop: Loop, world: int, steps: int, kills: int) -> str:
    """Kill and start a loop again; return an error if its model is not the uninterrupted one's."""
    extra, save = ["--dropout=0.1"] if loop.dropout else [], 3
    plain, torn = root / f"{loop.name}-{world}", root / f"{loop.name}-{world}-killed"
    arguments = [*loop.make_arguments(steps, save, plain / "checkpoints"), *extra]
    run_script(loop.script, arguments, root / "data", plain, world)
    after = train_with_kills(loop, root / "data", torn, world, steps, save, kills, *extra)
    print(f"{loop.name}, {world} ranks, killed after {after} further steps of {steps}")
    return "" if is_same_model(plain, torn) else "ANOTHER MODEL"


def iter_trials(root: Path, only: str, quick: bool, kills: int) -> Iterator[Trial]:
    steps = 10 if quick else 100
    for setting, limit in LIMITS.items() if only in ("", "losses") else ():
        compare = partial(compare_losses, root, steps, setting, limit)
        yield Trial("losses", str(setting), compare)
    asked = (16, 1) if quick else (60, kills)
    for loop, world in itertools.product(LOOPS, WORLDS) if only in ("", "kills") else ():
        compare = partial(compare_killed_training, root, loop, world, *asked)
        yield Trial("kills", f"{loop.name}, {world} ranks", compare)


def main(
    only: Annotated[str, typer.Option(help="losses or kills; default: both.")] = "",
    quick: Annotated[bool, typer.Option(help="Few steps: does it run_script?")] = False,
    kills: Annotated[int, typer.Option(min=1, max=14, help="Of each training, of 60 steps.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the moments of the kills.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if a loss is off by more than its limit, or a model is another."""
    random.seed(seed)
    with tempfile.TemporaryDirectory(prefix="benchmarks-trainer-") as scratch:
        write_data(Path(scratch) / "data")
        exit_with(run_trials("loops", iter_trials(Path(scratch), only, quick, kills), json_file))


if __name__ == "__main__":
    typer.run(main)
