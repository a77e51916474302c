"""Check for settings that make the SDK's drivers fail, and for settings that a tuning step ignores.

The drivers are the scripts with which SDK 3 starts a training job. ``environment.py`` writes
``export SM_HP_<NAME>='<value>'`` and ``SM_CHANNEL_<NAME>``, and ``sm_train.sh`` sources that file
under ``set -e``, so an invalid variable name or a quote ends the job (SDK 3.27,
sagemaker/train/container_drivers/scripts and sagemaker/train/templates.py; reproduced).
"""

import re
from collections.abc import Iterator

from trainyard.language.step_types.job_steps import has_driver_program
from trainyard.validate.rules.job_view import Job, join_member, select_training_jobs, to_known_text
from trainyard.validate.rules.rule import Violation, rule

SOURCE = "SDK 3.27, container_drivers/scripts/environment.py and train/templates.py; reproduced"
REASON = "the shell that sources sm_training.env stops: the job fails before the training starts"
DISTRIBUTION_KEYS = (
    "sagemaker_torch_distributed_enabled",
    "sagemaker_mpi_enabled",
    "sagemaker_distributed_dataparallel_enabled",
)
"""Hyperparameters that make sagemaker-training-toolkit, which starts the script in AWS's images,
start several ranks."""


@rule(
    "error",
    select=select_training_jobs,
    reason=REASON,
    fix="use letters, digits and underscores",
    source=SOURCE,
)
def channel_name_breaks_driver(job: Job) -> Iterator[Violation]:
    for index, channel in job.iter_items("InputDataConfig"):
        name = to_known_text(channel.get("ChannelName")) or ""
        if job.has_drivers and name and not re.fullmatch(r"\w+", name, re.ASCII):
            field = f"InputDataConfig[{index}].ChannelName"
            yield job.make_violation(
                field, f"SM_CHANNEL_{name.upper()} is not a valid variable name"
            )


@rule(
    "error",
    select=select_training_jobs,
    reason=REASON,
    fix="use letters, digits, underscores and hyphens",
    source=SOURCE,
)
def hyperparameter_name_breaks_driver(job: Job) -> Iterator[Violation]:
    for name in job.hyperparameters:
        if job.has_drivers and not re.fullmatch(r"[\w-]+", name, re.ASCII):
            field = join_member(job.hyperparameters_path, name)
            yield job.make_violation(field, f"SM_HP_{name.upper()} is not a valid variable name")


@rule(
    "error",
    select=select_training_jobs,
    reason=REASON + ", or it reads another value",
    fix="write the value without a single quote",
    source=SOURCE,
)
def hyperparameter_value_breaks_driver(job: Job) -> Iterator[Violation]:
    for name, value in job.hyperparameters.items():
        if job.has_drivers and "'" in (to_known_text(value) or ""):
            problem = f"{value!r} contains a single quote"
            yield job.make_violation(join_member(job.hyperparameters_path, name), problem)


@rule(
    "warning",
    select=select_training_jobs,
    reason="the tuning API has no entry point: sm_train.sh never runs, so one process per node "
    "trains, independently of the others",
    fix="use a training step for each setting, or an image whose own entry point starts the ranks",
    source="#5508; SDK 3.27, sagemaker/train/tuner.py: the distribution is dropped",
)
def tuning_drops_distribution(job: Job) -> Iterator[Violation]:
    has_drivers = has_driver_program({"HyperParameters": job.hyperparameters}) or job.runs_algorithm
    if job.step.type != "Tuning" or has_drivers:
        return
    ranks = job.nodes * (job.machine.accelerators or 1) if job.machine else job.nodes
    if ranks > 1 and not any(name in job.hyperparameters for name in DISTRIBUTION_KEYS):
        problem = f"{job.nodes} × {job.instance_type}, and nothing starts {ranks} ranks on them"
        yield job.make_violation(job.build_resource_path("InstanceCount"), problem)
