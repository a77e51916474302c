"""Check the network between machines: EFA, subnets, isolation and encryption.

No rule demands a VPC for EFA: without VpcConfig, SageMaker uses its own network (developer guide,
train-vpc, requires VPC settings only if VpcConfig is set).
"""

from collections.abc import Iterator

from trainyard.validate.rules.job_view import (
    Job,
    select_container_jobs,
    select_training_jobs,
    to_known_text,
)
from trainyard.validate.rules.rule import Violation, rule

DRIVER_EFA = {
    "ml.g4dn.8xlarge",
    "ml.g4dn.12xlarge",
    "ml.g5.48xlarge",
    "ml.p3dn.24xlarge",
    "ml.p4d.24xlarge",
    "ml.p4de.24xlarge",
    "ml.p5.48xlarge",
    "ml.p5e.48xlarge",
    "ml.trn1.32xlarge",
}
"""Instance types for which the SDK's drivers set FI_PROVIDER=efa: SM_EFA_NCCL_INSTANCES of
SDK 3.27, sagemaker/train/container_drivers/common/utils.py."""
RDMA_FAMILIES = ("ml.p4", "ml.p5", "ml.p6", "ml.trn")


@rule(
    "warning",
    select=select_training_jobs,
    reason="NCCL may fall back to TCP: slow, and jobs of hundreds of ranks hang with no message",
    fix="set the variables in the job's environment",
    source="sagemaker-training-toolkit#240, #5491: instance types missing in the drivers' list",
)
def efa_unknown_to_driver(job: Job) -> Iterator[Violation]:
    machine = job.machine
    if machine is None or machine.kind == "cpu" or not machine.efa or machine.name in DRIVER_EFA:
        return
    if job.nodes < 2 or not job.has_drivers:
        return
    if "FI_PROVIDER" not in job.environment:
        settings = "FI_PROVIDER=efa"
        if machine.name.startswith(RDMA_FAMILIES):
            settings += ", FI_EFA_USE_DEVICE_RDMA=1 and RDMAV_FORK_SAFE=1"
        problem = f"{machine.name} has EFA, but is not in the list of the SDK's drivers"
        yield job.make_violation("Environment", problem, f"set {settings} in the job's environment")


@rule(
    "warning",
    select=select_training_jobs,
    reason="EFA works within one availability zone: the nodes may not reach each other through it",
    fix="name one subnet",
    source="EC2 and ParallelCluster user guides: EFA isn't supported over availability zones",
)
def efa_across_subnets(job: Job) -> Iterator[Violation]:
    if job.machine and job.machine.efa and job.nodes > 1 and len(job.subnets) > 1:
        yield job.make_violation(
            "VpcConfig.Subnets", f"{job.nodes} nodes with EFA in {len(job.subnets)} subnets"
        )


@rule(
    "warning",
    select=select_training_jobs,
    reason="gradients go over TCP: the GPUs wait for the network",
    fix="use one larger instance, or a type with EFA",
    source="developer guide, data-parallel-use-api: EFA-enabled instances for best performance",
)
def nodes_without_efa(job: Job) -> Iterator[Violation]:
    machine = job.machine
    if machine and machine.kind == "gpu" and job.nodes > 1 and not machine.efa:
        problem = f"{job.nodes} × {machine.name}, which has no EFA"
        speed = f" ({machine.network_gbps:g} Gb/s)" if machine.network_gbps else ""
        yield job.make_violation(job.build_resource_path("InstanceType"), problem + speed)


@rule(
    "warning",
    select=select_training_jobs,
    reason="each collective is encrypted between the nodes: training takes longer and costs more",
    fix="leave it off inside a private subnet, if your rules allow it",
    source="developer guide, train-encrypt: can increase training time",
)
def encrypted_collectives(job: Job) -> Iterator[Violation]:
    field = "EnableInterContainerTrafficEncryption"
    machine = job.machine
    if machine and machine.kind != "cpu" and job.nodes > 1 and job.get(field) is True:
        yield job.make_violation(
            field, f"traffic between {job.nodes} × {machine.name} is encrypted"
        )


@rule(
    "error",
    select=select_container_jobs,
    reason="an isolated container reaches no server: the job fails or hangs at the first call",
    fix="turn EnableNetworkIsolation off, or track in files (mlflow_tracking_uri local)",
    source="developer guide, mkt-algo-model-internet-free: no outbound network calls",
)
def tracking_from_isolation(job: Job) -> Iterator[Violation]:
    if job.get(f"{job.network_prefix}EnableNetworkIsolation") is not True:
        return
    if uri := to_known_text(job.environment.get("MLFLOW_TRACKING_URI")):
        yield job.make_violation(
            "Environment.MLFLOW_TRACKING_URI", f"{uri} from an isolated container"
        )
    uri = to_known_text(job.hyperparameters.get("mlflow_tracking_uri")) or ""
    if uri.startswith(("arn:", "http://", "https://")):
        field = f"{job.hyperparameters_path}.mlflow_tracking_uri"
        yield job.make_violation(field, f"{uri} from an isolated container")
