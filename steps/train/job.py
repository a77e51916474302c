"""Train on the shards; started by torchrun or mpirun, once a rank.

torchrun --nproc_per_node 2 steps/train/job.py --workload language_model --workload_config '{…}' \\
    --max_steps 300 --global_batch 32 --micro_batch 8 --learning_rate 0.003
"""

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps import edge
from steps.arguments import add, read
from training.adapters import NO_BASE, Tuning, read_tuning, refuse_adapters
from training.config import TrainConfig
from training.mixture import read_mixture, told
from training.restart import Attempt, refuse_what_failed
from training.start import CHANNEL, Start, check_differences, check_step, opened, read_start
from training.strategy_table import refuse_torch
from training.watching.rule import Plan
from training.watching.watcher import Watcher, read_watching
from training.workloads import read_settings
from trainyard.common.errors import DataError, LostRankError, TrainingError, TrainyardError
from trainyard.common.uncollected import uncollected

if TYPE_CHECKING:
    from training.data.dataset import Dataset
    from training.identity import Parts
    from training.strategies.ranks import Ranks
    from training.workloads import Workload

log = logging.getLogger(__name__)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The job's arguments: every field of TrainConfig, the workload, the folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--workload_config", default="{}", help="the workload's settings as JSON")
    parser.add_argument("--start_from", default="", help="StartFrom as JSON; none: fresh weights")
    parser.add_argument("--mixture", default="", help="Mixture as JSON; none: data of one input")
    parser.add_argument("--tuning", default="", help="Tuning as JSON; none: all weights")
    parser.add_argument("--watch", default="", help="Watching as JSON; none: each rule warns")
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    parser.add_argument("--mp_parameters", help=argparse.SUPPRESS)  # SMP's; it reads them itself
    add(parser, TrainConfig)
    return parser.parse_args(arguments)


def read_config(options: argparse.Namespace) -> TrainConfig:
    """The hyperparameters, typed.

    Raises:
        TrainingError: one is wrong or missing; names it, its value, what was expected.
    """
    try:
        return read(options, TrainConfig, "hyperparameter")
    except ValueError as error:
        raise TrainingError(str(error)) from None


def train(options: argparse.Namespace, steps: list[int]) -> None:
    """Open the channels, train, and let rank 0 hand the model on.

    ``steps`` takes the number of each step that is reported.
    """
    root: Path = options.root
    failure = root / "output/failure"
    refuse_what_failed(failure)
    config = read_config(options)
    settings = read_settings(options.workload_config)
    start = _start(options.start_from, root / "input/data", config)
    mixture = read_mixture(options.mixture)
    tuning = _tuning(options.tuning, start, config)
    watching = read_watching(options.watch)

    # Once a process: what a test, or a notebook, has of its own stays to be collected.
    with contextlib.nullcontext() if "torch" in sys.modules else uncollected():
        import torch
        import torch._inductor.config  # noqa: F401 (with _dynamo: use_deterministic_algorithms' own)

        from training import artifact, base_model, begin, held, lora
        from training.checkpoint import Checkpoints
        from training.data.mixture import inputs
        from training.health import recorder
        from training.health.check import check
        from training.lineage import Lineage
        from training.loop import Loop, fresh
        from training.microbatches import settings_by_batch
        from training.reports import Reports
        from training.strategies import started
        from training.trackers import trackers
        from training.watchdog import Watch
        from training.workloads import load

    if refused := refuse_torch(config, torch.__version__):
        raise TrainingError(refused)
    timeout = config.collective_timeout_seconds
    workload = load(options.workload, settings, root / "input/data/train")
    data = _open_data(root, workload, loaded=config.shuffle == "windowed")
    workload.fit(data["train"])
    fingerprint = data["train"].fingerprint
    model = fresh(config, workload)
    if start and start.said is None:
        folder = start.asked.hugging_face is not None
        begin_with = (options.workload, start.folder, start.asked.uri)
        base_model.fill(model, workload, *begin_with, asked_as_folder=folder)
    lora.tune(model, workload, tuning, config.seed)
    shaping = settings_by_batch(config, workload, model)
    parts = _parts(config, options.workload, settings, fingerprint, start, shaping, tuning)
    if mixture is not None:
        fingerprints = {one.name: one.fingerprint for one in inputs(data["train"].merged).values()}
        parts = parts.model_copy(update={"mixture": told(mixture), "inputs": fingerprints})
    name = parts.name
    differs = check_differences(start, parts) if start else {}
    job = {"workload": options.workload, "workload_config": options.workload_config}
    follow = trackers(config, root, name, {**job, "train_fingerprint": fingerprint})
    history = root / "checkpoints" / name / "history.jsonl"
    recordings = root / "checkpoints/flight-recorder"
    recorder.record(recordings)

    with (
        started(config, workload) as strategy,
        Watch(strategy.ranks, timeout, recordings, lambda e: _end_at_once(e, failure)) as watch,
        Reports(history, strategy.ranks.rank, follow) as reports,
    ):
        ranks = strategy.ranks
        check(config.health_check, ranks)
        _check_alike(parts, ranks)
        lineage = Lineage.begin(parts, config.strategy, ranks.world)
        if start and ranks.rank == 0:
            begin.tell(start, differs, config, history)
        checkpoints = Checkpoints(
            root / "checkpoints",
            name,
            config.keep_checkpoints,
            ranks,
            timeout,
            lineage=lineage,
            start=start,
        )

        def say(metrics: Mapping[str, float]) -> None:
            steps.append(int(metrics["step"]))
            reports.line(metrics)
            for event in watcher.add(metrics) if ranks.rank == 0 else ():
                reports.event(event)
                if event.action == "stop":
                    loop.stop(event.reason)

        traces = root / "output/data/profile"
        loop = Loop(
            config,
            workload,
            strategy,
            checkpoints,
            say,
            keep=reports.keep,
            traces=traces,
            model=model,
            mixture=mixture,
        )
        watch.step = lambda: loop.step
        if ranks.rank == 0 and (why := watch.previous()):
            log.warning("%s; going on from the checkpoint of step %d", why, loop.step)
        plan = Plan(
            config.max_steps,
            config.warmup_steps,
            loop.step,
            optimizer=config.optimizer,
            grad_clip=config.grad_clip,
            fine_tuning=start is not None and start.base is not None,
        )
        watcher = Watcher(watching, plan)
        reports.begin(loop.step)
        watcher.begin(reports.history)
        loop.train(data["train"], data["validation"])
        base = {"base": start.base} if start and start.base else {}
        description: dict[str, Any] = {}
        if ranks.rank == 0:
            description = {
                "workload": options.workload,
                "workload_config": settings,
                "train_config": config.model_dump(mode="json"),
                "train_fingerprint": fingerprint,
                "steps": loop.step,
                "world_size": ranks.world,
                "training": checkpoints.lineage.told(),
                "parameters": held.parameters(strategy),
                "packages_sha256": artifact.add_code(root / "model", options.workload),
            }
        shard_bytes = config.export_shard_mb * 10**6
        artifact.save(
            root / "model",
            strategy,
            workload,
            description | base,
            reports.history,
            tuning.adapters,
            shard_bytes,
        )


def _start(text: str, channels: Path, config: TrainConfig) -> Start | None:
    """What the weights begin with, if not fresh ones."""
    asked = read_start(text)
    if asked is None:
        return None
    start = opened(asked, channels / CHANNEL)
    check_step(start, config)
    return start


def _tuning(text: str, start: Start | None, config: TrainConfig) -> Tuning:
    """Which weights are trained, if not all."""
    tuning = read_tuning(text)
    if tuning.adapters and (start is None or start.base is None):
        raise TrainingError(f"train.adapters: {NO_BASE}")
    if tuning.adapters and (refused := refuse_adapters(config)):
        raise TrainingError(refused)
    return tuning


def _parts(
    config: TrainConfig,
    workload: str,
    settings: dict,
    fingerprint: str,
    start: Start | None,
    shaping: dict[str, Any],
    tuning: Tuning,
) -> "Parts":
    """What this process trains with, by the code that it runs.

    ``shaping``: settings that shape the weights of such a model only.
    """
    import torch

    from training import identity

    files = identity.running(workload, Path(__file__))
    known = identity.parts(config, workload, settings, files)
    release = torch.__version__.partition("+")[0]  # +cpu and +cu128 are the same torch
    more = {"data": fingerprint, "torch": release, "start": start.part if start else None}
    more["tuning"] = tuning.part
    return known.model_copy(update={"settings": known.settings | shaping, **more})


def _check_alike(parts: "Parts", ranks: "Ranks") -> None:
    """Raises: TrainingError: a rank trains something else than rank 0, all being one training."""
    every = ranks.gather(parts)
    for rank, other in enumerate(every):
        if differs := other.differences(every[0]):
            raise TrainingError(
                f"rank {rank} differs from rank 0: {'; '.join(differs.values())}; give all "
                "machines the same code, settings and data"
            )


def _open_data(root: Path, workload: "Workload", *, loaded: bool) -> dict[str, "Dataset"]:
    """Both splits, checked: once a machine that all files are there.

    Raises:
        DataError: a file is missing, or the samples were made for another workload.
    """
    from training.data.dataset import Dataset
    from training.strategies.ranks import read_ranks

    data = {
        "train": Dataset(root / "input/data/train", loaded=loaded),
        "validation": Dataset(root / "input/data/validation"),
    }
    packing = workload.packing
    for split, dataset in data.items():
        if read_ranks()[1] == 0:
            dataset.check()
        made_for = dataset.merged.workload
        if (made_for, dataset.fields) != (packing.info, packing.fields):
            raise DataError(
                f"the {split} shards hold samples {_kind(dataset.fields)} made for {made_for}; "
                f"the training is set up for {_kind(packing.fields)} and {packing.info}: "
                "shard the data again with the same workload settings"
            )
    return data


def report_failure(error: TrainyardError, failure: Path) -> None:
    """As ``edge.report``; but a lost rank is no failure while torchrun starts the ranks again."""
    attempt = Attempt.read()
    if isinstance(error, LostRankError) and attempt.another:
        print(f"error: {error}", flush=True)
        return
    if isinstance(error, LostRankError) and attempt.most:
        error = LostRankError(
            f"{error}; restarted {attempt.most} times already (train.max_restarts)"
        )
    edge.report(error, failure)


def _end_at_once(error: LostRankError, failure: Path) -> None:
    """From the watchdog's thread: the main one may never come back from a collective."""
    report_failure(error, failure)
    os._exit(1)


def _kind(fields: Mapping[str, Any]) -> str:
    """``tokens uint16 (257,)``: what a sample is, in an error's words."""
    return ", ".join(f"{name} {field.dtype} {field.shape}" for name, field in fields.items())


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    failure, steps = options.root / "output/failure", []
    try:
        edge.run(lambda: train(options, steps), failure, report_failure)
    except Exception as error:
        # When not one step was made, torchrun's restarts would come to the same end.
        if not steps or not Attempt.read().another:
            edge.write_message(f"{type(error).__name__}: {error}", failure)
        raise


if __name__ == "__main__":
    main()
