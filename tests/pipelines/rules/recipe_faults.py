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


def _break(recipe: str, field: str, *overrides: str, rule: str | None = None) -> RecipeFault:
    return RecipeFault(recipe, overrides, field, rule)


RECIPE_FAULTS = (
    _break(LAPTOP, "reigster", "reigster.model_package_group=x"),
    _break(LAPTOP, "pipeline.max_parallel_steps", "pipeline.max_parallel_steps=0"),
    _break(LAPTOP, "aws.prefix", "aws.prefix=/trainyard/"),
    _break(LAPTOP, "aws.vpc.security_groups", "aws.vpc={subnets: [subnet-1]}"),
    _break(LAPTOP, "workload.name", "workload.name=langauge_model"),
    _break(LAPTOP, "workload.config", "workload.config.heads=3"),
    _break(LAPTOP, "validation_share", "shard.validation_share=0.45", "shard.test_share=0.45"),
    _break(LAPTOP, "shard.volume_gb", "shard.volume_gb=20000"),
    _break(LAPTOP, "shard.max_runtime_minutes", "shard.max_runtime_minutes=10000"),
    _break(LAPTOP, "shard.shard_mb", "shard.shard_mb=0"),
    _break(LAPTOP, "max_wait_minutes", "train.spot=true"),
    _break(LAPTOP, "max_wait_minutes", "train.spot=true", "train.max_wait_minutes=10"),
    _break(LAPTOP, "cannot be combined with spot", "train.spot=true", "train.max_wait_minutes=60",
        "train.keep_alive_minutes=10"),
    _break(LAPTOP, "train.keep_alive_minutes", "train.keep_alive_minutes=120"),
    _break(LAPTOP, "train.max_runtime_minutes", "train.max_runtime_minutes=50000"),
    _break(LAPTOP, "input_mode FSxLustre", "train.input_mode=FSxLustre"),
    _break(LAPTOP, "train.fsx", "train.input_mode=FSxLustre",
        "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: /abcd/data}"),
    _break(PROD, "train.fsx.directory_path", "train.input_mode=FSxLustre",
        "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: data}"),
    _break(LAPTOP, "global_batch 15", "train.loop.global_batch=15"),
    _break(LAPTOP, "tensor_parallel 3", "train.loop.tensor_parallel=3"),
    _break(LAPTOP, "context_parallel 3", "train.loop.context_parallel=3"),
    _break(LAPTOP, "strategy single", "train.loop.strategy=single"),
    _break(LAPTOP, "profile_at", "train.loop.profile_at=299", "train.loop.profile_steps=5"),
    _break(LAPTOP, "instance_type ml.m5.large", "train.loop.strategy=deepspeed"),
    _break(LAPTOP, "launcher mpi", "train.launcher=mpi"),
    _break(MESH, "tensor_parallel 8", "train.loop.tensor_parallel=8"),
    _break(PROD, "shard_degree 24", "train.loop.shard_degree=24"),
    _break(PROD, "tensor_parallel 32", "train.loop.tensor_parallel=32",
        "train.loop.shard_degree=0"),
    _break(PROD, "images.pytorch_version", "train.loop.strategy=smp"),
    _break(PROD, "instance_type ml.g5.48xlarge", "train.loop.strategy=smddp",
        "train.loop.shard_degree=0", "train.instance_type=ml.g5.48xlarge"),
    _break(PROD, "retry.max_attempts", "retry.max_attempts=21"),
    _break(FLIGHTS, "approval_status", "register.approval_status=Approved"),
    _break(FLIGHTS, "pipeline.overridable", "pipeline.overridable=[GateMaxAuc]"),
    _break(FLIGHTS, "workload.config", "workload.config.numbers=[arr_delay]"),
    _break(PROD, "train.instance_type", "train.instance_type=ml.p4d.24xlage"),
    _break(PROD, "ClusterConfig.InstanceType", "evaluate.instance_type=ml.p4d.24xlarge",
        rule="enum"),
    _break(PROD, "ClusterConfig.VolumeSizeInGB", "evaluate.instance_type=ml.g5.2xlarge",
        rule="volume-beyond-local-disks"),
    _break(PROD, "EnableNetworkIsolation", "aws.network_isolation=true",
        rule="packages-from-isolation"),
    _break(PROD, "KmsKeyId", "aws.region=eu-west-1", rule="regions-differ"),
    _break(PROD, "InputMode", "train.loop.shuffle=uniform", rule="uniform-shuffle-over-fastfile"),
    _break(PROD, "checkpoint_interval", "train.loop.checkpoint_interval=20000",
        rule="rare-checkpoints"),
)  # fmt: skip
