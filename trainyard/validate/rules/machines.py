"""Check instance types: whether they exist, fit the kind of job, and are fully used."""

from collections.abc import Iterator
from dataclasses import replace

from trainyard.instance_types import Machine
from trainyard.validate.rules.job_view import (
    PROCESSES,
    Job,
    as_list,
    select_processing_jobs,
    select_training_jobs,
)
from trainyard.validate.rules.rule import Violation, rule

GROUPS = "ResourceConfig.InstanceGroups"


@rule(
    "error",
    select=select_training_jobs,
    reason="CreateTrainingJob refuses the request when the step starts",
    fix="describe all machines in InstanceGroups, or leave it out",
    source="developer guide, train-heterogeneous-cluster: InstanceGroups in place of InstanceType "
    "and InstanceCount",
)
def instance_groups_beside_a_type(job: Job) -> Iterator[Violation]:
    fields = [
        name
        for name in ("InstanceType", "InstanceCount")
        if job.read_raw(job.build_resource_path(name))
    ]
    if job.read_raw(GROUPS) and fields:
        yield job.make_violation(GROUPS, f"is used together with {' and '.join(fields)}")


@rule(
    "error",
    select=select_training_jobs,
    reason="CreateTrainingJob refuses the request when the step starts: the channel has no "
    "machines",
    fix="name groups of ResourceConfig.InstanceGroups, or leave InstanceGroupNames out",
    source="developer guide, train-heterogeneous-cluster; botocore: "
    "S3DataSource.InstanceGroupNames (documentation)",
)
def unknown_instance_group(job: Job) -> Iterator[Violation]:
    group_names = [
        job.document.resolve_value(group.get("InstanceGroupName"))
        for _, group in job.iter_items(GROUPS)
    ]
    if not all(isinstance(name, str) for name in group_names):
        return
    field = "DataSource.S3DataSource.InstanceGroupNames"
    for index, channel in job.iter_items("InputDataConfig"):
        names = replace(job, arguments=channel).get(field)
        for position, name in enumerate(as_list(names)):
            if isinstance(name, str) and name not in group_names:
                choices = ", ".join(group_names) or "no groups"
                yield job.make_violation(
                    f"InputDataConfig[{index}].{field}[{position}]",
                    f"there is no group {name!r}; there are {choices}",
                )


@rule(
    "error",
    select=select_training_jobs,
    reason="NCCL refuses a GPU that two ranks share: the training fails when it starts",
    fix="start as many processes per node as it has GPUs (the default)",
    source="NCCL 'Duplicate GPU detected' (src/init.cc), from memory",
)
def more_processes_than_gpus(job: Job) -> Iterator[Violation]:
    ranks = job.ranks_per_node
    if job.machine and job.machine.kind == "gpu" and ranks and ranks > job.machine.accelerators:
        yield job.make_violation(
            f"Environment.{PROCESSES}", _format_process_count(ranks, job.machine)
        )


def _format_process_count(ranks: int, machine: Machine) -> str:
    """Return a message that compares the processes per node with a machine's accelerators."""
    return f"{ranks} processes per node, {machine.name} has {machine.accelerators} accelerators"


@rule(
    "warning",
    select=select_training_jobs,
    reason="the GPUs without a process are paid for and never used",
    fix="start as many processes per node as it has GPUs (the default)",
    source="torchrun_driver.py of SDK 3.27: one process per GPU by default",
)
def idle_gpus(job: Job) -> Iterator[Violation]:
    ranks = job.ranks_per_node
    if job.machine and ranks and ranks < job.machine.accelerators:
        yield job.make_violation(
            f"Environment.{PROCESSES}", _format_process_count(ranks, job.machine)
        )


@rule(
    "warning",
    select=select_processing_jobs,
    reason="each instance gets all data and does the same work",
    fix="distribute one input with ShardedByS3Key, or use one instance",
    source="API reference, ProcessingS3Input.S3DataDistributionType",
)
def instances_share_no_work(job: Job) -> Iterator[Violation]:
    inputs = [item.get("S3Input") for _, item in job.iter_items("ProcessingInputs")]
    modes = [i.get("S3DataDistributionType") for i in inputs if isinstance(i, dict)]
    if job.nodes > 1 and modes and "ShardedByS3Key" not in modes:
        problem = f"{job.nodes} instances, and every input is FullyReplicated"
        yield job.make_violation(job.build_resource_path("InstanceCount"), problem)
