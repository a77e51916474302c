"""Check spot training, checkpoints, warm pools, time limits and quotas."""

from collections.abc import Iterator

from trainyard.language.retries import CAPACITY
from trainyard.validate.rules.job_view import (
    Job,
    as_list,
    iter_jobs,
    select_processing_jobs,
    select_training_jobs,
)
from trainyard.validate.rules.rule import Violation, rule

DAY = 86_400
LONGEST_TRAINING = 28 * DAY
USUAL_LONGEST = 5 * DAY
USUAL_INSTANCES = 20
WARM_POOL = 3600
QUOTAS = "Service Quotas of SageMaker (developer guide, feature-store-feature-processor-quotas)"
RUNTIME, WAIT = "StoppingCondition.MaxRuntimeInSeconds", "StoppingCondition.MaxWaitTimeInSeconds"


@rule(
    "warning",
    select=select_training_jobs,
    reason="after each interruption the training starts from the beginning, and may never end",
    fix="set CheckpointConfig.S3Uri, and write checkpoints to /opt/ml/checkpoints",
    source="developer guide, model-managed-spot-training; #1040 #3062",
)
def spot_without_checkpoints(job: Job) -> Iterator[Violation]:
    if job.spot and not job.read_raw("CheckpointConfig.S3Uri"):
        yield job.make_violation("CheckpointConfig", "spot instances and no CheckpointConfig")


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job",
    fix="set MaxWaitTimeInSeconds, at least MaxRuntimeInSeconds",
    source="developer guide, model-managed-spot-training: specify MaxWaitTimeInSeconds",
)
def spot_without_max_wait(job: Job) -> Iterator[Violation]:
    if job.spot and job.read_raw(WAIT) is None:
        yield job.make_violation(WAIT, "spot instances and no MaxWaitTimeInSeconds")


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job",
    fix="raise MaxWaitTimeInSeconds: it includes both the wait for capacity and the run time",
    source="API reference, StoppingCondition.MaxWaitTimeInSeconds",
)
def max_wait_below_max_runtime(job: Job) -> Iterator[Violation]:
    wait, runtime = job.read_number(WAIT), job.read_number(RUNTIME)
    if job.spot and wait is not None and runtime is not None and wait < runtime:
        yield job.make_violation(WAIT, f"{wait} s, less than MaxRuntimeInSeconds {runtime} s")


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job: it is only supported when EnableManagedSpotTraining is "
    "true",
    fix="leave MaxWaitTimeInSeconds out, or turn spot on",
    source="#4140, kenza-ai/sagify#111",
)
def max_wait_without_spot(job: Job) -> Iterator[Violation]:
    if job.get("EnableManagedSpotTraining") in (None, False) and job.read_raw(WAIT) is not None:
        yield job.make_violation(WAIT, "is set, but the job does not use spot instances")


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job",
    fix="leave KeepAlivePeriodInSeconds out, or turn spot off",
    source="developer guide, train-warm-pools: cannot be used with spot instances",
)
def warm_pool_of_spot(job: Job) -> Iterator[Violation]:
    field = "ResourceConfig.KeepAlivePeriodInSeconds"
    if job.spot and job.read_number(field):
        yield job.make_violation(
            field, f"{job.read_number(field)} s, but the job uses spot instances"
        )


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job",
    fix=f"request at most {WARM_POOL} s; the next job with the same settings renews it",
    source="developer guide, train-warm-pools: at most 3600 seconds",
)
def warm_pool_too_long(job: Job) -> Iterator[Violation]:
    field = "ResourceConfig.KeepAlivePeriodInSeconds"
    if (job.read_number(field) or 0) > WARM_POOL:
        yield job.make_violation(field, f"{job.read_number(field)} s")


@rule(
    "warning",
    select=select_training_jobs,
    reason="if the region has no such instances at that time, the entire run fails",
    fix=f"add a retry policy with {CAPACITY.name}, or use spot, which waits",
    source="developer guide, pipelines-retry-policy: InsufficientCapacityErrors",
)
def capacity_not_awaited(job: Job) -> Iterator[Violation]:
    policies = as_list(job.step.document.get("RetryPolicies"))
    caught = [p.get("ExceptionType") for p in policies if isinstance(p, dict)]
    is_awaited = job.spot or CAPACITY.name in str(caught) or job.step.type != "Training"
    if job.machine and job.machine.kind != "cpu" and not is_awaited:
        yield job.make_violation(
            job.build_resource_path("InstanceType"),
            f"{job.machine.name} on demand, without retries",
        )


@rule(
    "error",
    select=select_training_jobs,
    reason="the service refuses the job",
    fix="request at most 28 days, and continue from the checkpoint in another run",
    source="API reference, StoppingCondition.MaxRuntimeInSeconds",
)
def training_too_long(job: Job) -> Iterator[Violation]:
    if (job.read_number(RUNTIME) or 0) > LONGEST_TRAINING:
        yield job.make_violation(
            RUNTIME, f"{job.read_number(RUNTIME)} s is more than {LONGEST_TRAINING} s (28 days)"
        )


@rule(
    "warning",
    select=iter_jobs,
    reason="a new account has a quota of five days: the service refuses the job",
    fix="have the quota raised before the run, or request less",
    source=f"{QUOTAS}: longest run time 432000 s",
)
def runtime_beyond_usual_quota(job: Job) -> Iterator[Violation]:
    if USUAL_LONGEST < (job.read_number(RUNTIME) or 0) <= LONGEST_TRAINING:
        yield job.make_violation(
            RUNTIME, f"{job.read_number(RUNTIME)} s is more than {USUAL_LONGEST} s (5 days)"
        )


@rule(
    "warning",
    select=iter_jobs,
    reason="a new account may have 20 instances per job, fewer with GPUs: the service refuses it",
    fix="have the quota raised before the run, or request fewer",
    source=f"{QUOTAS}: 20 instances for a training job",
)
def instances_beyond_usual_quota(job: Job) -> Iterator[Violation]:
    if job.nodes > USUAL_INSTANCES:
        yield job.make_violation(job.build_resource_path("InstanceCount"), f"{job.nodes} instances")


@rule(
    "warning",
    select=select_processing_jobs,
    reason="the job may run for a day before it is stopped",
    fix="set StoppingCondition.MaxRuntimeInSeconds",
    source="SDK 3.27, Processor.max_runtime_in_seconds: the default is 24 hours",
)
def no_time_limit(job: Job) -> Iterator[Violation]:
    if job.step.type == "Processing" and job.read_raw(RUNTIME) is None:
        yield job.make_violation("StoppingCondition", "no MaxRuntimeInSeconds")
