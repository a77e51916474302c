"""Rules about our shard step: the memory that its processes need."""

from collections.abc import Iterator

from trainyard.validate.rules.job_view import Job, as_list, select_processing_jobs, to_known_text
from trainyard.validate.rules.rule import Violation, rule

SHARD_MEMORY = 12
"""Memory that a core needs to write shards, as a multiple of shard_mb; measured, see
steps/shard/config.py.
"""


@rule(
    "warning",
    select=select_processing_jobs,
    reason="the processes that write shards run out of memory and are killed",
    fix="lower shard_mb or processes, or choose an instance type with more memory",
    source="steps/shard/config.py: a core needs about 12 times shard_mb",
)
def shards_larger_than_memory(job: Job) -> Iterator[Violation]:
    arguments = [
        to_known_text(a) or "" for a in as_list(job.get("AppSpecification.ContainerArguments"))
    ]
    flags = dict(zip(arguments, arguments[1:], strict=False))
    if not job.machine or "--shard_mb" not in flags:
        return
    try:
        cores = int(flags.get("--processes", job.machine.vcpus))
        needed_gib = cores * SHARD_MEMORY * float(flags["--shard_mb"]) / 1024
    except ValueError:  # the step reports this itself
        return
    if needed_gib > job.machine.memory_gib:
        problem = (
            f"{cores} processes × {SHARD_MEMORY} × {flags['--shard_mb']} MB = {needed_gib:.0f} "
        )
        problem += f"GB; {job.machine.name} has {job.machine.memory_gib:g}"
        yield job.make_violation("AppSpecification.ContainerArguments", problem)
