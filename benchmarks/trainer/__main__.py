"""Train with others' loops on our shards: losses beside our loop's, and kills.

python -m benchmarks.trainer [--only losses|kills] [--quick] [--json FILE]

losses: Hugging Face's Trainer beside the native loop, on the same shards, from the same weights, in
one process and in two: the largest relative difference of any step's loss. Over the native module
float32 has to agree within 1e-6 where both loops add up in the same order. Where they do not, only
rounding may differ, so there float64 has to agree within 1e-12: an error in samples, weights or
means would be as large in it as in float32. Beside it stands the native loop's own difference
between one process and two. Then, with no limit, transformers' Llama (examples/llama), which
computes the same in another order.
kills: Trainer, Accelerate and Lightning, killed at random steps and started again; the final
weights have to be the uninterrupted training's, bit for bit.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from safetensors.torch import save_file

from benchmarks.harness import CHECKOUT, JsonFile, keep, screen
from benchmarks.trainer.loops import (
    LOOPS,
    MICRO,
    LoopFailed,
    interrupted,
    run,
    same_model,
    trainer_losses,
)
from training.config import TrainConfig
from training.data.shard_writer import write_dataset
from training.loop import fresh
from training.weights.initial.build_model import real
from training.workloads import load, load_packing

MODEL = {"context_length": 64, "layers": 2, "heads": 4, "dim": 128}
SAMPLES = 1000
OUR_MODULE = Path(__file__).parent / "with_our_module.py"
BATCH = 16
"""Samples of an optimizer step over all ranks."""


@dataclass(frozen=True)
class Setting:
    """How the ranks share a step's samples, and the type that everything is computed in.

    Accelerate deals the micro-batches out to the ranks in turn; our loop gives each rank a piece
    of the batch that hangs together. So with more ranks than one, and more micro-batches a rank
    than one, the same gradients are added up in another order.
    """

    world: int = 1
    micro: int = MICRO
    precision: str = "float32"

    @property
    def accumulated(self) -> int:
        """Micro-batches of a rank in a step."""
        return BATCH // (self.micro * self.world)

    def __str__(self) -> str:
        shared = f"{self.world} × {self.accumulated} micro-batches of {self.micro}"
        return f"{shared}, {self.precision}"


def settings(steps: int, setting: Setting) -> dict[str, Any]:
    """The native loop's: what the Trainer's linear schedule and AdamW are, in our words.

    With ``wsd``, all of it decay to 1/steps of the peak, step n has 1 - n/steps of the peak, which
    is the Trainer's default.
    """
    return {
        "strategy": "ddp",
        "max_steps": steps,
        "global_batch": BATCH,
        "micro_batch": setting.micro,
        "learning_rate": 0.003,
        "schedule": "wsd",
        "decay_share": 1.0,
        "min_learning_rate_ratio": 1 / steps,
        "weight_decay": 0.1,
        "beta1": 0.9,
        "beta2": 0.95,
        "grad_clip": 1.0,
        "precision": setting.precision,
        "log_interval": 1,
        "seed": 0,
    }


TRAINERS = (
    "--learning_rate=0.003",
    "--weight_decay=0.1",
    "--adam_beta1=0.9",
    "--adam_beta2=0.95",
    "--max_grad_norm=1.0",
    "--seed=0",
)


def write_data(folder: Path) -> None:
    """The standard library's sources as bytes, two splits; the last samples have padding."""
    import pyarrow as pa

    from benchmarks.shards.corpus import standard_library

    packing = load_packing("language_model", MODEL)
    packer = packing.packer()
    texts = pa.RecordBatch.from_pydict({"text": [t for t in standard_library(200_000) if t]})
    rows = packer.add(texts)["tokens"][: SAMPLES - 1].copy()
    for index in range(0, len(rows), 10):  # ragged: a mean of means would be another loss
        rows[index, index % 60 + 2 :] = packing.tokenizer.end
    for split, part in (("train", rows), ("validation", rows[:20])):
        write_dataset(
            folder / split,
            {"tokens": part},
            packing.fields,
            shard_bytes=20_000,
            split=split,
            workload=packing.info,
        )


def native(data: Path, out: Path, steps: int, setting: Setting) -> dict[int, float]:
    """Step → loss of the train job."""
    (out / "input").mkdir(parents=True)
    (out / "input/data").symlink_to(data)
    given = settings(steps, setting)
    flags = [f"--{name}={value}" for name, value in given.items()]
    command = ["steps/train/job.py", "--workload=language_model", f"--root={out}", *flags]
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={setting.world}", "--standalone"]
    environment = os.environ | {"PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, *command, f"--workload_config={json.dumps(MODEL)}"],
        cwd=CHECKOUT,
        env=environment | {"GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LoopFailed(done.stdout[-1000:] + done.stderr[-1000:])
    [history] = out.glob("checkpoints/*/history.jsonl")
    lines = map(json.loads, history.read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def initial(folder: Path) -> None:
    """The native loop's fresh weights as a Hugging Face folder."""
    workload = load("language_model", MODEL)
    model = real(fresh(TrainConfig(**settings(1, Setting())), workload))
    weights, config = workload.export(model.state_dict())
    folder.mkdir(parents=True)
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def trainers(
    data: Path, out: Path, steps: int, setting: Setting, base: Path | None = None
) -> dict[int, float]:
    """Step → loss of the Trainer: over transformers' Llama from ``base``, or over our module."""
    arguments = [
        *LOOPS[0].arguments(steps, steps, out / "checkpoints"),
        f"--per_device_train_batch_size={setting.micro}",
        f"--gradient_accumulation_steps={setting.accumulated}",
        *TRAINERS,
    ]
    if base:
        run(LOOPS[0].script, [*arguments, f"--base={base}"], data, out, setting.world)
    else:
        precision = f"--precision={setting.precision}"
        run(str(OUR_MODULE), [*arguments, precision], data, out, setting.world)
    return trainer_losses(out)


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The largest relative one of all steps."""
    assert one.keys() == other.keys(), f"steps {sorted(one)} and {sorted(other)}"
    return max(abs(one[step] / loss - 1) for step, loss in other.items())


WORLDS = (1, 2)
HALVES = Setting(world=2, micro=BATCH // 2)
"""Two processes that have the same samples in both loops, so the same sums."""
DEALT = Setting(world=2)
"""Two processes with other samples in each loop: their sums round in another way."""
LIMITS: dict[Setting, float | None] = {
    Setting(): 1e-6,
    HALVES: 1e-6,
    DEALT: None,  # the same in float64 is held to a limit instead
    Setting(precision="float64"): 1e-12,
    Setting(world=2, precision="float64"): 1e-12,
}
"""The largest relative difference of a loss that the native module may have in the Trainer."""
Losses = dict[int, float]
console = screen()


def main(
    only: Annotated[str, typer.Option(help="losses or kills; default: both.")] = "",
    quick: Annotated[bool, typer.Option(help="Few steps: does it run?")] = False,
    kills: Annotated[int, typer.Option(min=1, max=14, help="Of each training, of 60 steps.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the moments of the kills.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if a loss is off by more than its limit, or a model is another."""
    random.seed(seed)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="benchmarks-trainer-") as scratch:
        root = Path(scratch)
        write_data(root / "data")
        if only in ("", "losses"):
            found["losses"] = losses(root, 10 if quick else 100)
        if only in ("", "kills"):
            found["kills"] = killed(root, 1 if quick else kills, 16 if quick else 60)
    keep(json_file, found)
    close = all(line["within"] for line in found.get("losses", {}).values())
    raise typer.Exit(int(not close or not all(found.get("kills", {}).values())))


def losses(root: Path, steps: int) -> dict[str, dict[str, Any]]:
    """What was compared → the largest relative difference of a step's loss, and its limit."""
    found: dict[str, dict[str, Any]] = {}

    def compared(name: str, one: Losses, other: Losses, limit: float | None = None) -> None:
        off = difference(one, other)
        found[name] = {"off": off, "limit": limit, "within": limit is None or off <= limit}
        held = f", of {limit:.0e} allowed" if limit else ""
        console.print(f"losses: {name}: off by {off:.1e} at most{held}", highlight=False)

    data, ours = root / "data", {}
    for number, (setting, limit) in enumerate(LIMITS.items()):
        ours[setting] = native(data, root / f"native-{number}", steps, setting)
        theirs = trainers(data, root / f"trainer-{number}", steps, setting)
        compared(f"the native module in the Trainer, {setting}", theirs, ours[setting], limit)
    one, two = (Setting(world) for world in WORLDS)
    compared("the native loop with two processes and with one, float32", ours[two], ours[one])
    initial(root / "base")
    for setting in (one, two):
        out = root / f"llama-{setting.world}"
        theirs = trainers(data, out, steps, setting, root / "base")
        compared(f"transformers' Llama in the Trainer, {setting}", theirs, ours[setting])
    return found


def killed(root: Path, kills: int, steps: int) -> dict[str, bool]:
    """Loop and ranks → whether the model is the uninterrupted one's."""
    found, save = {}, 3
    for loop in LOOPS:
        extra = ["--dropout=0.1"] if loop.dropout else []
        for world in WORLDS:
            plain, torn = root / f"{loop.name}-{world}", root / f"{loop.name}-{world}-killed"
            arguments = [*loop.arguments(steps, save, plain / "checkpoints"), *extra]
            run(loop.script, arguments, root / "data", plain, world)
            after = interrupted(loop, root / "data", torn, world, steps, save, kills, *extra)
            same = found[f"{loop.name}, {world} ranks"] = same_model(plain, torn)
            console.print(
                f"kills: {loop.name}, {world} ranks, killed after {after} further steps of "
                f"{steps}: {'bitwise the uninterrupted model' if same else 'ANOTHER MODEL'}",
                highlight=False,
            )
    return found


if __name__ == "__main__":
    typer.run(main)
