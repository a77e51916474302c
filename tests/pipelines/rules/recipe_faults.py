"""Mistakes in recipes, as ``--set`` would make them.

``field`` is what the refusal has to name. ``rule`` is the rule that names it when the recipe alone
cannot know, and the definition has to be compiled.
"""

from dataclasses import dataclass

LAPTOP, PROD, MESH, FLIGHTS = "laptop", "prod", "mesh", "flights"


@dataclass(frozen=True, slots=True)
class RecipeFault:
    """A recipe of the repository, with overrides that make it wrong."""

    recipe: str
    overrides: tuple[str, ...]
    field: str
    rule: str | None = None


def _of(recipe: str, field: str, *overrides: str, rule: str | None = None) -> RecipeFault:
    return RecipeFault(recipe, overrides, field, rule)


RECIPE_FAULTS = (
    _of(LAPTOP, "reigster", "reigster.model_package_group=x"),
    _of(LAPTOP, "pipeline.max_parallel_steps", "pipeline.max_parallel_steps=0"),
    _of(LAPTOP, "aws.prefix", "aws.prefix=/trainyard/"),
    _of(LAPTOP, "aws.vpc.security_groups", "aws.vpc={subnets: [subnet-1]}"),
    _of(LAPTOP, "workload.name", "workload.name=langauge_model"),
    _of(LAPTOP, "workload.config", "workload.config.heads=3"),
    _of(LAPTOP, "validation_share", "shard.validation_share=0.45", "shard.test_share=0.45"),
    _of(LAPTOP, "shard.volume_gb", "shard.volume_gb=20000"),
    _of(LAPTOP, "shard.max_runtime_minutes", "shard.max_runtime_minutes=10000"),
    _of(LAPTOP, "shard.shard_mb", "shard.shard_mb=0"),
    _of(LAPTOP, "max_wait_minutes", "train.spot=true"),
    _of(LAPTOP, "max_wait_minutes", "train.spot=true", "train.max_wait_minutes=10"),
    _of(LAPTOP, "cannot be combined with spot", "train.spot=true", "train.max_wait_minutes=60",
        "train.keep_alive_minutes=10"),
    _of(LAPTOP, "train.keep_alive_minutes", "train.keep_alive_minutes=120"),
    _of(LAPTOP, "train.max_runtime_minutes", "train.max_runtime_minutes=50000"),
    _of(LAPTOP, "input_mode FSxLustre", "train.input_mode=FSxLustre"),
    _of(LAPTOP, "train.fsx", "train.input_mode=FSxLustre",
        "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: /abcd/data}"),
    _of(PROD, "train.fsx.directory_path", "train.input_mode=FSxLustre",
        "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: data}"),
    _of(LAPTOP, "global_batch 15", "train.loop.global_batch=15"),
    _of(LAPTOP, "tensor_parallel 3", "train.loop.tensor_parallel=3"),
    _of(LAPTOP, "context_parallel 3", "train.loop.context_parallel=3"),
    _of(LAPTOP, "strategy single", "train.loop.strategy=single"),
    _of(LAPTOP, "profile_at", "train.loop.profile_at=299", "train.loop.profile_steps=5"),
    _of(LAPTOP, "instance_type ml.m5.large", "train.loop.strategy=deepspeed"),
    _of(LAPTOP, "launcher mpi", "train.launcher=mpi"),
    _of(MESH, "tensor_parallel 8", "train.loop.tensor_parallel=8"),
    _of(PROD, "shard_degree 24", "train.loop.shard_degree=24"),
    _of(PROD, "tensor_parallel 32", "train.loop.tensor_parallel=32", "train.loop.shard_degree=0"),
    _of(PROD, "images.pytorch_version", "train.loop.strategy=smp"),
    _of(PROD, "instance_type ml.g5.48xlarge", "train.loop.strategy=smddp",
        "train.loop.shard_degree=0", "train.instance_type=ml.g5.48xlarge"),
    _of(PROD, "retry.max_attempts", "retry.max_attempts=21"),
    _of(FLIGHTS, "approval_status", "register.approval_status=Approved"),
    _of(FLIGHTS, "pipeline.overridable", "pipeline.overridable=[GateMaxAuc]"),
    _of(FLIGHTS, "workload.config", "workload.config.numbers=[arr_delay]"),
    _of(PROD, "train.instance_type", "train.instance_type=ml.p4d.24xlage"),
    _of(PROD, "ClusterConfig.InstanceType", "evaluate.instance_type=ml.p4d.24xlarge", rule="enum"),
    _of(PROD, "ClusterConfig.VolumeSizeInGB", "evaluate.instance_type=ml.g5.2xlarge",
        rule="volume-beyond-local-disks"),
    _of(PROD, "EnableNetworkIsolation", "aws.network_isolation=true",
        rule="packages-from-isolation"),
    _of(PROD, "KmsKeyId", "aws.region=eu-west-1", rule="regions-differ"),
    _of(PROD, "InputMode", "train.loop.shuffle=uniform", rule="uniform-shuffle-over-fastfile"),
    _of(PROD, "checkpoint_interval", "train.loop.checkpoint_interval=20000",
        rule="rare-checkpoints"),
)  # fmt: skip
