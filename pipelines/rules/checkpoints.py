"""Rules about our training's checkpoints: where, how often, and whether the disk suffices."""

import json
from collections.abc import Iterator

from pipelines.rules.trainyard_jobs import read_settings, select_our_trainings
from steps.train.config import CHECKPOINTS
from trainyard.validate.rules.job_view import Job
from trainyard.validate.rules.rule import Violation, rule
from trainyard.validate.rules.spot import RUNTIME

LOST_SHARE = 0.1  # of the training: if an interruption may lose more, it is a warning
LOST_SECONDS = 3600
CHECKPOINT_BYTES = 12
"""Bytes of one parameter in our checkpoints: the weight and two moments, in float32."""


@rule(
    "error",
    select=select_our_trainings,
    reason="SageMaker does not copy the folder to which the training writes: no checkpoint is kept",
    fix=f"set LocalPath to {CHECKPOINTS}, or leave it out",
    source="steps/train/config.py",
)
def checkpoints_elsewhere(job: Job) -> Iterator[Violation]:
    field = "CheckpointConfig.LocalPath"
    path = job.read_text(field)
    if path and path.rstrip("/") != CHECKPOINTS:
        yield job.make_violation(field, f"{path}; the training writes to {CHECKPOINTS}")


@rule(
    "warning",
    select=select_our_trainings,
    reason="a machine that is lost without notice, or whose save takes longer than the two-minute "
    "notice, loses the work since the last checkpoint",
    fix="lower checkpoint_interval",
    source="docs/interruptions.md; sagemaker-training-toolkit#125 #173. How long a step takes is "
    "not known before the run: the bound is the interval's share of MaxRuntimeInSeconds",
)
def rare_checkpoints(job: Job) -> Iterator[Violation]:
    config = read_settings(job)
    if not job.spot or not config:
        return
    share = min(1.0, config.checkpoint_interval / config.max_steps)
    seconds = share * (job.read_number(RUNTIME) or 0)
    if share > LOST_SHARE or seconds > LOST_SECONDS:
        problem = f"every {config.checkpoint_interval} of {config.max_steps} steps: an interruption"
        problem += f" may cost {share:.0%} of the run, up to {seconds / 60:.0f} minutes"
        yield job.make_violation(f"{job.hyperparameters_path}.checkpoint_interval", problem)


@rule(
    "error",
    select=select_our_trainings,
    reason="the disk fills up while a checkpoint is written, and the work since the last is lost",
    fix="raise VolumeSizeInGB, or lower keep_checkpoints",
    source="training/checkpoint/; 12 × layers × dim² parameters or more (Kaplan et al. 2020)",
)
def volume_smaller_than_checkpoints(job: Job) -> Iterator[Violation]:
    config, machine = read_settings(job), job.machine
    local = machine.local_storage_gb if machine else None
    volume = local or job.read_number(job.build_resource_path("VolumeSizeInGB"))
    parameters = _count_fewest_parameters(job)
    if config and volume and parameters and job.nodes:
        # An old checkpoint is deleted only when the new one is complete.
        checkpoint_count = config.keep_checkpoints + 1
        needed_gb = parameters * CHECKPOINT_BYTES * checkpoint_count / job.nodes / 1e9
        if needed_gb > volume:
            yield job.make_violation(
                job.build_resource_path("VolumeSizeInGB"),
                f"{checkpoint_count} checkpoints of {parameters / 1e9:.1f}e9 parameters take at "
                f"least {needed_gb:.0f} GB a node; there are {volume} GB",
            )


def _count_fewest_parameters(job: Job) -> int | None:
    """Return the minimum number of parameters of the language model: those of its blocks' matrices;
    None if the job trains no language model.
    """
    try:
        config = json.loads(job.hyperparameters.get("workload_config", ""))
        return 12 * int(config["layers"]) * int(config["dim"]) ** 2
    except (TypeError, ValueError, KeyError):
        return None
