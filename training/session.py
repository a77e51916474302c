"""One training run on one rank: built from its settings and data, run, exported.

It is imported only after the settings are read, because it imports torch.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config  # noqa: F401 (with _dynamo: use_deterministic_algorithms' own)
from torch import nn

from training import identity
from training.checkpoint import marker
from training.checkpoint.checkpoints import Checkpoints
from training.checkpoint.marker import Lineage
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.export import artifact, weight_location
from training.identity import Parts
from training.input_shares import Mixture, list_identity_shares
from training.loop import Loop, build_fresh_model
from training.microbatches import select_batch_settings
from training.optimizers import compute_learning_rate
from training.strategies import start_strategy
from training.strategies.precision import AUTOMATIC
from training.strategies.ranks import Ranks, read_ranks
from training.strategies.single import Strategy
from training.watching import flight_recorder
from training.watching.trackers import Reports, create_trackers
from training.watching.watch_rule import Plan
from training.watching.watchdog import Watch, has_training_ended
from training.watching.watcher import Watcher
from training.weights.finetuning.adapters import Tuning
from training.weights.starting_weights import Start, check_differences
from training.workloads import Workload, load_workload
from trainyard.common import atomic_file
from trainyard.common.errors import DataError, LostRankError, TrainingError

log = logging.getLogger(__name__)
HISTORY = "history.jsonl"
RECORDINGS = "checkpoints/flight-recorder"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """Settings of the job, read from its hyperparameters."""

    config: TrainConfig
    workload: str
    settings: dict[str, Any]
    """The workload's settings."""
    root: Path
    """Root folder of the job: /opt/ml."""
    job: Path
    """Script that was started."""
    start: Start | None
    """Model or checkpoint that the weights start from; None for fresh weights."""
    mixture: Mixture | None
    tuning: Tuning
    watching: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Model and data, with the parts of the training's identity that follow from them."""

    workload: Workload
    data: Mapping[str, Dataset]
    model: nn.Module
    parts: Parts


def build_training(job_settings: JobSettings) -> TrainingSetup:
    """Open the data, and build the model on meta with its initial weights.

    Raises:
        DataError: a file is missing, or the samples were prepared for another workload.
        TrainingError: a setting does not fit model or data.
    """
    config, start = job_settings.config, job_settings.start
    workload = load_workload(
        job_settings.workload, job_settings.settings, job_settings.root / "input/data/train"
    )
    data = _open_data(job_settings.root, workload, in_memory=config.shuffle == "windowed")
    workload.fit(data["train"])
    model = build_fresh_model(config, workload)
    if start and start.metadata is None:
        from training.weights.finetuning import base_model

        folder = start.start_from.hugging_face is not None
        begin_with = (job_settings.workload, start.folder, start.start_from.uri)
        base_model.fill_model(model, workload, *begin_with, asked_as_folder=folder)
    if job_settings.tuning.part is not None:
        from training.weights.finetuning import lora

        lora.apply_tuning(model, workload, job_settings.tuning, config.seed)
    shaping = select_batch_settings(config, workload, model)
    parts = _build_parts(job_settings, data["train"], shaping)
    return TrainingSetup(workload=workload, data=data, model=model, parts=parts)


def run(
    job_settings: JobSettings,
    built: TrainingSetup,
    steps: list[int],
    end: Callable[[LostRankError], None],
) -> None:
    """Train on this rank, and export the model.

    Args:
        steps: list to which the number of each reported step is appended.
        end: function that ends this process; called in the watchdog's thread.

    Raises:
        TrainingError: the training cannot continue.
    """
    if has_training_ended():
        log.info(
            "nothing is left to do: every rank had finished successfully before one of them died"
        )
        return
    flight_recorder.record_collectives(job_settings.root / RECORDINGS)
    with start_strategy(
        job_settings.config, built.workload, _find_resume_point(job_settings, built.parts)
    ) as strategy:
        config = strategy.config
        parts = _replace_precision(built.parts, config.precision)
        job_settings, built = replace(job_settings, config=config), replace(built, parts=parts)
        _run_training(job_settings, built, strategy, steps, end)


def _find_resume_point(job_settings: JobSettings, parts: Parts) -> tuple[int, str]:
    """Return (step, precision) of the checkpoint from which this training will continue.

    Only this machine's folder is searched; return (0, "") if there is no checkpoint.
    """
    folder = job_settings.root / "checkpoints"
    steps = [
        (step, precision)
        for precision in AUTOMATIC
        for step in marker.list_steps(folder / _replace_precision(parts, precision).name)
    ]
    start = job_settings.start
    if not steps and start is not None and start.metadata is not None and start.lineage is not None:
        steps = [(start.metadata.step, start.lineage.parts.settings["precision"])]
    return max(steps, default=(0, ""))


def _replace_precision(parts: Parts, precision: str) -> Parts:
    return parts.model_copy(update={"settings": parts.settings | {"precision": precision}})


def _run_training(
    job_settings: JobSettings,
    built: TrainingSetup,
    strategy: Strategy,
    steps: list[int],
    end: Callable[[LostRankError], None],
) -> None:
    """Resume or begin the training, run it with its watchdog and reports, and export the model."""
    config, parts, root = job_settings.config, built.parts, job_settings.root
    differs = check_differences(job_settings.start, parts) if job_settings.start else {}
    history = root / "checkpoints" / parts.name / HISTORY
    timeout = config.collective_timeout_seconds
    with (
        Watch(strategy.ranks, timeout, root / RECORDINGS, end) as watch,
        Reports(history, strategy.ranks.rank, _create_trackers(job_settings, built)) as reports,
    ):
        check_ranks_agree(parts, built.data["validation"].fingerprint, strategy.ranks)
        if job_settings.start and strategy.ranks.rank == 0:
            log_start_and_copy_history(job_settings.start, differs, config, history)
        loop, checkpoints = _create_loop(job_settings, built, strategy, reports, steps)
        watch.step = lambda: loop.step
        if strategy.ranks.rank == 0 and (reason := watch.explain_restart()):
            log.warning("%s; continuing from the checkpoint of step %d", reason, loop.step)
        loop.train(built.data["train"], built.data["validation"])
        assert checkpoints.lineage is not None  # _create_loop set it
        _export_model(job_settings, built, strategy, loop, checkpoints.lineage, reports.history)


def _create_loop(
    job_settings: JobSettings,
    built: TrainingSetup,
    strategy: Strategy,
    reports: Reports,
    steps: list[int],
) -> tuple[Loop, Checkpoints]:
    """Return the loop, resumed from the newest checkpoint, and the checkpoints; its metric lines
    are reported and watched.
    """
    config, start, ranks = job_settings.config, job_settings.start, strategy.ranks
    checkpoints = Checkpoints(
        job_settings.root / "checkpoints",
        built.parts.name,
        config.keep_checkpoints,
        ranks,
        config.collective_timeout_seconds,
        lineage=Lineage.begin(built.parts, config.strategy, ranks.world),
        start=start,
    )

    # The loop calls this in ``train`` at the earliest, when ``loop`` and ``watcher`` below exist.
    def report_metrics(metrics: Mapping[str, float]) -> None:
        """Record the step, report its metric line, and act on what the watching rules find."""
        steps.append(int(metrics["step"]))
        reports.report_metrics(metrics)
        for event in watcher.add(metrics) if ranks.rank == 0 else ():
            reports.report_event(event)
            if event.action == "stop":
                loop.request_stop(event.reason)

    loop = Loop(
        config,
        built.workload,
        strategy,
        checkpoints,
        report_metrics,
        keep=reports.save_history,
        traces=job_settings.root / "output/data/profile",
        model=built.model,
        mixture=job_settings.mixture,
    )
    plan = Plan(
        config.max_steps,
        config.warmup_steps,
        loop.step,
        fine_tuning=start is not None and start.base is not None,
    )
    watcher = Watcher(job_settings.watching, plan)
    reports.begin(loop.step)
    watcher.begin(reports.history)
    return loop, checkpoints


def _export_model(
    job_settings: JobSettings,
    built: TrainingSetup,
    strategy: Strategy,
    loop: Loop,
    lineage: Lineage,
    history: list[dict[str, float]],
) -> None:
    """Write the model's files; rank 0 adds their description."""
    folder = job_settings.root / "model"
    base = job_settings.start.base if job_settings.start else None
    description: dict[str, Any] = {"base": base} if base else {}
    if strategy.ranks.rank == 0:
        description = {
            "workload": job_settings.workload,
            "workload_config": job_settings.settings,
            "train_config": job_settings.config.model_dump(mode="json"),
            "train_fingerprint": built.data["train"].fingerprint,
            "steps": loop.step,
            "world_size": strategy.ranks.world,
            "training": lineage.as_json(),
            "parameters": weight_location.count_parameters(strategy),
            "packages_sha256": artifact.add_code(folder, job_settings.workload),
        } | description
    size = job_settings.config.export_shard_mb * 10**6
    adapters = job_settings.tuning.adapters
    artifact.save_artifact(folder, strategy, built.workload, description, history, adapters, size)


def _create_trackers(job_settings: JobSettings, built: TrainingSetup) -> Any:
    """Return the trackers that the settings enable."""
    parameters = {
        "workload": job_settings.workload,
        "workload_config": json.dumps(job_settings.settings, separators=(",", ":")),
        "train_fingerprint": built.data["train"].fingerprint,
    }
    return create_trackers(job_settings.config, job_settings.root, built.parts.name, parameters)


def log_start_and_copy_history(
    start: Start, differs: Mapping[str, str], config: TrainConfig, history: Path
) -> None:
    """Log what the training starts from, and copy its earlier metric lines; call it on one rank.

    Args:
        differs: result of ``check_differences``.
        history: file of this training's metric lines.
    """
    log.info("the training %s", start.start_from.describe_start())
    if start.metadata is None or start.lineage is None:
        return
    step, before = start.metadata.step, config.model_copy(update=start.lineage.parts.settings)
    log.info(
        "it continues after step %d of training %s; different since: %s; learning rate %g at step "
        "%d, then %g by this training's schedule",
        step,
        start.lineage.parts.name,
        "; ".join(differs.values()) or "nothing",
        compute_learning_rate(before, step - 1),
        step,
        compute_learning_rate(config, step),
    )
    # Exists only if the whole folder of that training run was given.
    earlier_history = start.folder.parent / HISTORY
    if earlier_history.is_file() and not history.exists():
        history.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write_file(history, earlier_history.read_bytes())


def _build_parts(job_settings: JobSettings, train: Dataset, shaping: dict[str, Any]) -> Parts:
    """Return all parts of the identity of this training run, including the code of this process.

    Args:
        shaping: further settings that affect this model's weights.
    """
    files = identity.read_code_files(job_settings.workload, job_settings.job)
    known_parts = identity.build_parts(
        job_settings.config, job_settings.workload, job_settings.settings, files
    )
    more: dict[str, Any] = {
        "settings": known_parts.settings | shaping,
        "data": train.fingerprint,
        "torch": torch.__version__.partition("+")[0],  # +cpu and +cu128 are the same torch
        "start": job_settings.start.part if job_settings.start else None,
        "tuning": job_settings.tuning.part,
    }
    if job_settings.mixture is not None:
        from training.data.mixture import collect_inputs

        more["mixture"] = list_identity_shares(job_settings.mixture)
        more["inputs"] = {
            source.name: source.fingerprint for source in collect_inputs(train.manifests).values()
        }
    return known_parts.model_copy(update=more)


def check_ranks_agree(parts: Parts, validation: str, ranks: Ranks) -> None:
    """Check that all ranks run the same training, on the same samples. Collective: call it on every
    rank.

    Args:
        validation: fingerprint of the validation split, which is not part of the identity.

    Raises:
        TrainingError: a rank differs from rank 0; raised on every rank.
    """
    first, *others = ranks.gather((parts, validation))
    for rank, (other, samples) in enumerate(others, 1):
        differs = [*other.describe_differences(first[0]).values()]
        if samples != first[1]:
            differs.append(f"validation data {first[1]} → {samples}")
        if differs:
            raise TrainingError(
                f"rank {rank} differs from rank 0: {'; '.join(differs)}; give all machines the "
                "same code, settings and data"
            )


def _open_data(root: Path, workload: Workload, *, in_memory: bool) -> dict[str, Dataset]:
    """Open and check both splits; one rank per machine checks that all files exist.

    Raises:
        DataError: a file is missing, or the samples were prepared for another workload.
    """
    data = {
        "train": Dataset(root / "input/data/train", in_memory=in_memory),
        "validation": Dataset(root / "input/data/validation"),
    }
    packing = workload.packing
    for split, dataset in data.items():
        if read_ranks()[1] == 0:
            dataset.check_files()
        stored_info = dataset.manifests.workload
        if (stored_info, dataset.fields) != (packing.info, packing.fields):
            raise DataError(
                f"the {split} shards hold samples {_describe_sample(dataset.fields)} made for "
                f"{stored_info}; "
                f"the training is set up for {_describe_sample(packing.fields)} and "
                f"{packing.info}: "
                "shard the data again with the same workload settings"
            )
    return data


def _describe_sample(fields: Mapping[str, Any]) -> str:
    """Describe what a sample is, for messages: ``tokens uint16 (257,)``."""
    return ", ".join(f"{name} {field.dtype} {field.shape}" for name, field in fields.items())
