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
    _of(LAPTOP, "train.loop.max_stepz", "train.loop.max_stepz=3"),
    _of(LAPTOP, "shard.instance_cuont", "shard.instance_cuont=3"),
    _of(LAPTOP, "reigster", "reigster.model_package_group=x"),
    _of(LAPTOP, "pipeline.name", "pipeline.name=my_pipeline"),
    _of(LAPTOP, "pipeline.max_parallel_steps", "pipeline.max_parallel_steps=0"),
    _of(LAPTOP, "aws.role", "aws.role=SageMakerRole"),
    _of(LAPTOP, "aws.bucket", "aws.bucket=My_Bucket"),
    _of(LAPTOP, "aws.prefix", "aws.prefix=/trainyard/"),
    _of(LAPTOP, "aws.vpc.security_groups", "aws.vpc={subnets: [subnet-1]}"),
    _of(LAPTOP, "data.input", "data.input=s3a://bucket/raw"),
    _of(LAPTOP, "data.input", "data.input=/data/raw"),
    _of(LAPTOP, "data.example", "data.example=wikitext"),
    _of(LAPTOP, "images.python_version", "images.python_version=3.12"),
    _of(LAPTOP, "workload.name", "workload.name=langauge_model"),
    _of(LAPTOP, "workload.config.layrs", "workload.config.layrs=2"),
    _of(LAPTOP, "workload.config", "workload.config.heads=3"),
    _of(LAPTOP, "shard", "shard.validation_share=0.45", "shard.test_share=0.45"),
    _of(LAPTOP, "shard.volume_gb", "shard.volume_gb=20000"),
    _of(LAPTOP, "shard.max_runtime_minutes", "shard.max_runtime_minutes=10000"),
    _of(LAPTOP, "shard.shard_mb", "shard.shard_mb=0"),
    _of(LAPTOP, "train.instance_type", "train.instance_type=m5.large"),
    _of(LAPTOP, "train.instance_count", "train.instance_count=0"),
    _of(LAPTOP, "max_wait_minutes", "train.spot=true"),
    _of(LAPTOP, "max_wait_minutes", "train.spot=true", "train.max_wait_minutes=10"),
    _of(
        LAPTOP,
        "keep_alive_minutes",
        "train.spot=true",
        "train.max_wait_minutes=60",
        "train.keep_alive_minutes=10",
    ),
    _of(LAPTOP, "train.keep_alive_minutes", "train.keep_alive_minutes=120"),
    _of(LAPTOP, "train.max_runtime_minutes", "train.max_runtime_minutes=50000"),
    _of(LAPTOP, "input_mode FSxLustre", "train.input_mode=FSxLustre"),
    _of(
        LAPTOP,
        "train.fsx",
        "train.input_mode=FSxLustre",
        "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: /abcd/data}",
    ),
    _of(
        PROD,
        "train.fsx.directory_path",
        "train.input_mode=FSxLustre",
        "train.fsx={file_system_id: fs-0123456789abcdef0, directory_path: data}",
    ),
    _of(LAPTOP, "train.input_mode", "train.input_mode=Pipe"),
    _of(LAPTOP, "train.loop.strategy", "train.loop.strategy=zero"),
    _of(LAPTOP, "global_batch 15", "train.loop.global_batch=15"),
    _of(LAPTOP, "shard_degree 3", "train.loop.strategy=fsdp", "train.loop.shard_degree=3"),
    _of(LAPTOP, "tensor_parallel 3", "train.loop.tensor_parallel=3"),
    _of(LAPTOP, "context_parallel 3", "train.loop.context_parallel=3"),
    _of(LAPTOP, "strategy single", "train.loop.strategy=single"),
    _of(LAPTOP, "profile_at", "train.loop.profile_at=299", "train.loop.profile_steps=5"),
    _of(LAPTOP, "train.loop.learning_rate", "train.loop.learning_rate=-0.1"),
    _of(LAPTOP, "instance_type ml.m5.large", "train.loop.strategy=deepspeed"),
    _of(LAPTOP, "launcher mpi", "train.launcher=mpi"),
    _of(MESH, "pipeline_parallel 3", "train.loop.pipeline_parallel=3"),
    _of(MESH, "tensor_parallel 8", "train.loop.tensor_parallel=8"),
    _of(PROD, "global_batch 1000", "train.loop.global_batch=1000"),
    _of(PROD, "shard_degree 24", "train.loop.shard_degree=24"),
    _of(PROD, "global_batch 1024", "train.instance_count=3", "train.loop.shard_degree=0"),
    _of(PROD, "tensor_parallel 32", "train.loop.tensor_parallel=32", "train.loop.shard_degree=0"),
    _of(PROD, "images.pytorch_version", "train.loop.strategy=smp"),
    _of(
        PROD,
        "instance_type ml.g5.48xlarge",
        "train.loop.strategy=smddp",
        "train.loop.shard_degree=0",
        "train.instance_type=ml.g5.48xlarge",
    ),
    _of(PROD, "cache.expire_after", "cache.expire_after=30 days"),
    _of(PROD, "retry.causes", "retry.causes=[capacty]"),
    _of(PROD, "retry.max_attempts", "retry.max_attempts=21"),
    _of(FLIGHTS, "gate.below_baseline", "gate.below_baseline=bigram"),
    _of(FLIGHTS, "gate.max_bits_per_byte", "gate.max_bits_per_byte=1"),
    _of(FLIGHTS, "gate.min_auc", "gate.min_auc=.nan"),
    _of(FLIGHTS, "approval_status", "register.approval_status=Approved"),
    _of(FLIGHTS, "register.approval", "register.approval=Maybe"),
    _of(FLIGHTS, "pipeline.overridable", "pipeline.overridable=[GateMaxAuc]"),
    _of(FLIGHTS, "workload.config", "workload.config.numbers=[arr_delay]"),
    _of(PROD, "train.instance_type", "train.instance_type=ml.p4d.24xlage"),
    _of(
        PROD,
        "ClusterConfig.InstanceType",
        "evaluate.instance_type=ml.p4d.24xlarge",
        rule="enum",
    ),
    _of(
        PROD,
        "ClusterConfig.VolumeSizeInGB",
        "evaluate.instance_type=ml.g5.2xlarge",
        rule="volume-beyond-local-disks",
    ),
    _of(
        PROD,
        "EnableNetworkIsolation",
        "aws.network_isolation=true",
        rule="packages-from-isolation",
    ),
    _of(PROD, "KmsKeyId", "aws.region=eu-west-1", rule="regions-differ"),
    _of(PROD, "InputMode", "train.loop.shuffle=uniform", rule="uniform-shuffle-over-fastfile"),
    _of(
        PROD,
        "checkpoint_interval",
        "train.loop.checkpoint_interval=20000",
        rule="rare-checkpoints",
    ),
)
