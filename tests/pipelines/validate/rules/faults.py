"""Mistakes to put into the valid definition, each with the rule that has to name it.

``FAULTS`` must be found. ``NEAR`` are the changes next to them that are right, or not that rule's
business: the rule must be silent. Every rule has some of both (test_rules.py).
"""

from dataclasses import dataclass
from typing import Any

from tests.pipelines.validate.rules.definitions import (
    CPU_IMAGE,
    GPU_IMAGE,
    KEY,
    REGISTRY,
    RUNTIME,
    SMP_IMAGE,
    WAIT,
    Change,
    add,
    default,
    drop,
    file_system_channel,
    hyper,
    put,
    run_uri,
    s3_channel,
    valid,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Changes to the valid definition, and the rule that they concern."""

    rule: str
    name: str
    changes: tuple[Change, ...]

    def apply(self) -> dict[str, Any]:
        """The valid definition with the changes."""
        definition = valid()
        for change in self.changes:
            change(definition)
        return definition


def _of(rule: str, **cases: Change | tuple[Change, ...]) -> list[Fault]:
    """Faults of one rule: a name with its change or changes."""
    return [
        Fault(rule, f"{rule}: {name.replace('_', ' ')}", c if isinstance(c, tuple) else (c,))
        for name, c in cases.items()
    ]


def machine(name: str) -> Change:
    return default("TrainInstanceType", name)


def nodes(count: int) -> Change:
    return default("TrainInstanceCount", count)


def image(uri: str) -> Change:
    return put("Train", "AlgorithmSpecification.TrainingImage", uri)


def neuron(repository: str = "pytorch-training-neuronx:2.8.0-neuronx-py311") -> Change:
    return image(f"{REGISTRY}/{repository}")


def environment(step: str, **values: str) -> Change:
    return put(step, "Environment", values)


def channel(**fields: Any) -> Change:
    return add("Train", "InputDataConfig", {**s3_channel("extra", "s3://b3b/x", "File"), **fields})


def fsx(**changes: Any) -> Change:
    return add("Train", "InputDataConfig", {**file_system_channel(), **changes})


def retry(step: str, **fields: Any) -> Change:
    policy = {"ExceptionType": ["SageMaker.CAPACITY_ERROR"], "IntervalSeconds": 60}
    return put(step, "/RetryPolicies", [{**policy, **fields}])


SHARD = "ProcessingResources.ClusterConfig"
SPOT = (put("Train", "EnableManagedSpotTraining", True), put("Train", WAIT, 172_800))
TWO_SUBNETS = put("Train", "VpcConfig.Subnets", ["subnet-0a1b2c3d", "subnet-1a1b2c3d"])
ISOLATED = put("Train", "EnableNetworkIsolation", True)
OWN_IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/train:1"
ONE_GPU = (machine("ml.g5.2xlarge"), hyper("Train", shard_degree="0", global_batch="8"))
OUTPUT = "ProcessingOutputConfig.Outputs.0.S3Output.S3Uri"
TUNED = "TrainingJobDefinition"
FSX_STREAMED = file_system_channel() | {"InputMode": "FastFile"}

FAULTS = (
    *_of(
        "unknown-instance-type",
        misspelt=machine("ml.p4d.24xlage"),
        no_prefix=machine("p4d.24xlarge"),
        of_a_processing_job=put("Shard", f"{SHARD}.InstanceType", "ml.m5.24xl"),
        of_a_tuning_job=put("Tune", f"{TUNED}.ResourceConfig.InstanceType", "ml.m9z.large"),
    ),
    *_of(
        "not-a-processing-type",
        a100=put("Evaluate", f"{SHARD}.InstanceType", "ml.p4d.24xlarge"),
        trainium=put("Evaluate", f"{SHARD}.InstanceType", "ml.trn1.2xlarge"),
        c5n=put("Shard", f"{SHARD}.InstanceType", "ml.c5n.xlarge"),
    ),
    *_of(
        "more-processes-than-gpus",
        sixteen_on_eight=environment("Train", PET_NPROC_PER_NODE="16"),
        two_on_one=(*ONE_GPU, environment("Train", PET_NPROC_PER_NODE="2")),
    ),
    *_of(
        "idle-gpus",
        one_of_eight=(
            environment("Train", PET_NPROC_PER_NODE="1"),
            hyper("Train", shard_degree="2"),
        ),
        four_of_eight=environment("Train", PET_NPROC_PER_NODE="4"),
    ),
    *_of(
        "instances-share-no-work",
        replicated=put(
            "Shard", "ProcessingInputs.0.S3Input.S3DataDistributionType", "FullyReplicated"
        ),
        more_instances=put("Evaluate", f"{SHARD}.InstanceCount", 4),
    ),
    *_of(
        "gpu-image-on-cpu-machine",
        train=machine("ml.c5.18xlarge"),
        shard=put("Shard", "AppSpecification.ImageUri", GPU_IMAGE),
        by_cuda_tag=(
            machine("ml.m5.large"),
            image(f"{REGISTRY}/pytorch-training:2.5.1-cu124-py311"),
        ),
    ),
    *_of(
        "cpu-image-on-accelerator",
        train=image(CPU_IMAGE),
        evaluate=put("Evaluate", "AppSpecification.ImageUri", CPU_IMAGE),
    ),
    *_of(
        "image-of-another-accelerator",
        cuda_on_trainium=machine("ml.trn1.32xlarge"),
        neuron_on_gpus=neuron(),
    ),
    *_of(
        "regions-differ",
        image=image(GPU_IMAGE.replace("us-east-1", "eu-west-1")),
        key=put(
            "Train", "OutputDataConfig.KmsKeyId", "arn:aws:kms:us-west-2:111122223333:key/1234abcd"
        ),
        inside_a_branch=put(
            "Publish", "AppSpecification.ImageUri", CPU_IMAGE.replace("us-east-1", "us-west-2")
        ),
    ),
    *_of(
        "image-of-another-registry",
        common_account_in_hong_kong=image(GPU_IMAGE.replace("us-east-1", "ap-east-1")),
        hong_kongs_account_here=image(GPU_IMAGE.replace("763104351884", "871362719292")),
    ),
    *_of(
        "training-settings",
        strategy=hyper("Train", strategy="fdsp"),
        learning_rate=hyper("Train", learning_rate="-1"),
        micro_batch=hyper("Train", micro_batch="0"),
        degree_of_ddp=hyper("Train", strategy="ddp"),
        batches=hyper("Train", global_batch="127", micro_batch="4"),
        schedule=hyper("Train", schedule="linear"),
    ),
    *_of(
        "strategy-on-wrong-machine",
        smddp_on_h100=(
            machine("ml.p5.48xlarge"),
            hyper("Train", strategy="smddp", shard_degree="0"),
        ),
        smp_on_g5=(machine("ml.g5.48xlarge"), hyper("Train", strategy="smp")),
        deepspeed_on_cpu=(
            machine("ml.m5.24xlarge"),
            hyper("Train", strategy="deepspeed", shard_degree="0"),
        ),
    ),
    *_of(
        "strategy-without-library",
        smddp=hyper("Train", strategy="smddp", shard_degree="0"),
        smp=hyper("Train", strategy="smp"),
        horovod=hyper("Train", strategy="horovod", shard_degree="0"),
    ),
    *_of(
        "smp-image-without-smp",
        fsdp=image(SMP_IMAGE),
        ddp=(image(SMP_IMAGE), hyper("Train", strategy="ddp", shard_degree="0")),
    ),
    *_of(
        "world-does-not-fit",
        batch=hyper("Train", global_batch="96"),
        three_nodes=nodes(3),
        other_machine=machine("ml.p5.4xlarge"),
        pipeline=hyper("Train", pipeline_parallel="3"),
        shard_degree=hyper("Train", shard_degree="5"),
        single=(hyper("Train", strategy="single", shard_degree="0")),
        too_few_micro_batches=hyper(
            "Train", pipeline_parallel="8", shard_degree="0", micro_batch="64"
        ),
    ),
    *_of(
        "tensor-parallel-across-nodes",
        sixteen=hyper("Train", tensor_parallel="16", shard_degree="0", global_batch="16"),
    ),
    *_of(
        "uniform-shuffle-over-fastfile",
        of_the_channel=hyper("Train", shuffle="uniform"),
        by_default=put("Train", "HyperParameters.shuffle", "uniform"),
        of_the_job=(
            drop("Train", "InputDataConfig.0.InputMode"),
            put("Train", "AlgorithmSpecification.TrainingInputMode", "FastFile"),
            hyper("Train", shuffle="uniform"),
        ),
    ),
    *_of(
        "sharded-channel-of-ours",
        train=put(
            "Train",
            "InputDataConfig.0.DataSource.S3DataSource.S3DataDistributionType",
            "ShardedByS3Key",
        ),
        validation=put(
            "Train",
            "InputDataConfig.1.DataSource.S3DataSource.S3DataDistributionType",
            "ShardedByS3Key",
        ),
    ),
    *_of(
        "efa-unknown-to-driver",
        p5en=machine("ml.p5en.48xlarge"),
        b200=machine("ml.p6-b200.48xlarge"),
        g6e=(machine("ml.g6e.48xlarge")),
    ),
    *_of("efa-across-subnets", two=TWO_SUBNETS, on_h100=(TWO_SUBNETS, machine("ml.p5.48xlarge"))),
    *_of(
        "nodes-without-efa",
        g5=ONE_GPU,
        p3=machine("ml.p3.16xlarge"),
    ),
    *_of(
        "encrypted-collectives",
        train=put("Train", "EnableInterContainerTrafficEncryption", True),
        without_efa=(*ONE_GPU, put("Train", "EnableInterContainerTrafficEncryption", True)),
    ),
    *_of(
        "tracking-from-isolation",
        environment=(ISOLATED, environment("Train", MLFLOW_TRACKING_URI="https://mlflow.corp")),
        hyperparameter=(ISOLATED, hyper("Train", mlflow_tracking_uri="https://mlflow.corp")),
        managed=(
            ISOLATED,
            hyper("Train", mlflow_tracking_uri="arn:aws:sagemaker:us-east-1:1:mlflow-app/x"),
        ),
        processing=(
            put("Evaluate", "NetworkConfig.EnableNetworkIsolation", True),
            environment("Evaluate", MLFLOW_TRACKING_URI="https://mlflow.corp"),
        ),
    ),
    *_of(
        "packages-from-isolation",
        train=ISOLATED,
        shard=put("Shard", "NetworkConfig.EnableNetworkIsolation", True),
    ),
    *_of(
        "spot-without-checkpoints",
        none=(*SPOT, drop("Train", "CheckpointConfig")),
        no_uri=(*SPOT, drop("Train", "CheckpointConfig.S3Uri")),
    ),
    *_of(
        "spot-without-max-wait",
        none=put("Train", "EnableManagedSpotTraining", True),
        tuning=put("Tune", f"{TUNED}.EnableManagedSpotTraining", True),
    ),
    *_of(
        "max-wait-below-max-runtime",
        less=(SPOT[0], put("Train", WAIT, 3600)),
        by_a_second=(SPOT[0], put("Train", WAIT, 86_399)),
    ),
    *_of(
        "max-wait-without-spot",
        off=put("Train", WAIT, 172_800),
        not_said=(drop("Train", "EnableManagedSpotTraining"), put("Train", WAIT, 172_800)),
    ),
    *_of(
        "warm-pool-of-spot",
        train=(*SPOT, put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 600)),
    ),
    *_of(
        "warm-pool-too-long",
        two_hours=put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 7200),
    ),
    *_of(
        "checkpoints-elsewhere",
        tmp=put("Train", "CheckpointConfig.LocalPath", "/tmp/checkpoints"),
        model=put("Train", "CheckpointConfig.LocalPath", "/opt/ml/model"),
    ),
    *_of(
        "rare-checkpoints",
        a_fifth_of_the_run=(*SPOT, hyper("Train", checkpoint_interval="20000")),
        never=(*SPOT, hyper("Train", checkpoint_interval="100000")),
        hours=(
            *SPOT,
            put("Train", RUNTIME, 864_000),
            put("Train", WAIT, 864_000),
            hyper("Train", checkpoint_interval="5000"),
        ),
    ),
    *_of(
        "capacity-not-awaited",
        no_policy=drop("Train", "/RetryPolicies"),
        other_causes=retry("Train", ExceptionType=["Step.THROTTLING"]),
    ),
    *_of("training-too-long", a_year=put("Train", RUNTIME, 31_536_000)),
    *_of(
        "runtime-beyond-usual-quota",
        train=put("Train", RUNTIME, 864_000),
        shard=put("Shard", RUNTIME, 432_001),
    ),
    *_of(
        "instances-beyond-usual-quota",
        train=nodes(32),
        shard=put("Shard", f"{SHARD}.InstanceCount", 21),
    ),
    *_of("no-time-limit", shard=drop("Shard", "StoppingCondition")),
    *_of(
        "fastfile-on-processing",
        shard=put("Shard", "ProcessingInputs.0.S3Input.S3InputMode", "FastFile"),
        evaluate=put("Evaluate", "ProcessingInputs.0.S3Input.S3InputMode", "FastFile"),
    ),
    *_of(
        "fastfile-without-prefix",
        manifest=put(
            "Train", "InputDataConfig.0.DataSource.S3DataSource.S3DataType", "ManifestFile"
        ),
    ),
    *_of(
        "augmented-manifest-without-pipe",
        fastfile=put(
            "Train", "InputDataConfig.0.DataSource.S3DataSource.S3DataType", "AugmentedManifestFile"
        ),
        file=put(
            "Train", "InputDataConfig.2.DataSource.S3DataSource.S3DataType", "AugmentedManifestFile"
        ),
    ),
    *_of(
        "compression-without-pipe",
        file=channel(CompressionType="Gzip"),
        fastfile=channel(CompressionType="Gzip", InputMode="FastFile"),
    ),
    *_of(
        "gzip-input-without-pipe",
        shard=put("Shard", "ProcessingInputs.0.S3Input.S3CompressionType", "Gzip"),
    ),
    *_of(
        "file-system-streamed",
        fastfile=fsx(InputMode="FastFile"),
        inherited=(
            put("Train", "AlgorithmSpecification.TrainingInputMode", "FastFile"),
            fsx(InputMode=None),
        ),
        pipe=fsx(InputMode="Pipe"),
    ),
    *_of(
        "file-system-without-vpc",
        fsx=(fsx(), drop("Train", "VpcConfig")),
        efs=(
            add("Train", "InputDataConfig", file_system_channel("EFS", "/data")),
            drop("Train", "VpcConfig"),
        ),
    ),
    *_of(
        "fsx-directory",
        relative=add("Train", "InputDataConfig", file_system_channel(directory="abcd/data")),
        root=add("Train", "InputDataConfig", file_system_channel(directory="/")),
        s3=add("Train", "InputDataConfig", file_system_channel(directory="s3://bucket/data")),
    ),
    *_of("fsx-across-subnets", two=(fsx(), TWO_SUBNETS)),
    *_of(
        "malformed-s3-location",
        s3a=put("Train", "CheckpointConfig.S3Uri", "s3a://bucket/checkpoints"),
        capitals=put("Train", "CheckpointConfig.S3Uri", "s3://Bucket/checkpoints"),
        one_slash=put("Shard", OUTPUT, "s3:/bucket/out"),
        path=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "/data/raw"),
        underscore=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://my_bucket/raw"),
        in_a_join=put(
            "Train",
            "OutputDataConfig.S3OutputPath",
            {"Std:Join": {"On": "/", "Values": ["bucket/runs", "train"]}},
        ),
    ),
    *_of(
        "empty-key-part",
        literal=put("Train", "CheckpointConfig.S3Uri", "s3://bucket//checkpoints"),
        inside=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/raw//2026"),
    ),
    *_of(
        "outputs-collide",
        of_two_steps=put("Evaluate", OUTPUT, run_uri("Shard", "out")),
        of_one_step=add(
            "Shard",
            "ProcessingOutputConfig.Outputs",
            {"OutputName": "b", "S3Output": {"S3Uri": run_uri("Shard", "out")}},
        ),
        of_a_branch=put("Publish", OUTPUT, run_uri("Evaluate", "out")),
    ),
    *_of(
        "output-overwritten-by-next-run",
        processing=put("Shard", OUTPUT, "s3://bucket/shards"),
        transform=put("Score", "TransformOutput.S3OutputPath", "s3://bucket/scores"),
        join_of_words=put(
            "Shard", OUTPUT, {"Std:Join": {"On": "/", "Values": ["s3://bucket", "shards"]}}
        ),
    ),
    *_of(
        "key-for-local-disks",
        train=put("Train", "ResourceConfig.VolumeKmsKeyId", KEY),
        evaluate=put("Evaluate", f"{SHARD}.VolumeKmsKeyId", KEY),
        transform=(
            put("Score", "TransformResources.VolumeKmsKeyId", KEY),
            put("Score", "TransformResources.InstanceType", "ml.g4dn.xlarge"),
        ),
    ),
    *_of("volume-beyond-local-disks", evaluate=put("Evaluate", f"{SHARD}.VolumeSizeInGB", 500)),
    *_of(
        "training-volume-beyond-local-disks",
        p4d=put("Train", "ResourceConfig.VolumeSizeInGB", 9000),
        g5=(*ONE_GPU, put("Train", "ResourceConfig.VolumeSizeInGB", 451)),
    ),
    *_of(
        "volume-too-large",
        train=put("Train", "ResourceConfig.VolumeSizeInGB", 20_000),
        shard=put("Shard", f"{SHARD}.VolumeSizeInGB", 16_385),
    ),
    *_of(
        "volume-smaller-than-checkpoints",
        large_model=hyper("Train", workload_config='{"layers":96,"dim":24576}'),
        small_volume=(
            machine("ml.m5.24xlarge"),
            hyper("Train", shard_degree="0", keep_checkpoints="30"),
            put("Train", "ResourceConfig.VolumeSizeInGB", 30),
        ),
    ),
    *_of(
        "shards-larger-than-memory",
        shard_mb=put("Shard", "AppSpecification.ContainerArguments", ["--shard_mb", "4096"]),
        processes=put(
            "Shard",
            "AppSpecification.ContainerArguments",
            ["--shard_mb", "512", "--processes", "64"],
        ),
    ),
    *_of(
        "key-for-volume-only",
        shard=(
            put("Shard", f"{SHARD}.VolumeKmsKeyId", KEY),
            drop("Shard", "ProcessingOutputConfig.KmsKeyId"),
        ),
        tuning=put("Tune", f"{TUNED}.ResourceConfig.VolumeKmsKeyId", KEY),
    ),
    *_of(
        "cache-on-uncached-type",
        condition=put("Verdict", "/CacheConfig", {"Enabled": True, "ExpireAfter": "P1D"}),
        register=put("Register", "/CacheConfig", {"Enabled": True, "ExpireAfter": "P1D"}),
    ),
    *_of(
        "malformed-cache-expiry",
        words=put("Shard", "/CacheConfig.ExpireAfter", "30 days"),
        number=put("Shard", "/CacheConfig.ExpireAfter", 30),
        empty=put("Train", "/CacheConfig.ExpireAfter", "P"),
    ),
    *_of("cache-without-expiry", train=drop("Train", "/CacheConfig.ExpireAfter")),
    *_of(
        "never-hits-the-cache",
        input=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", run_uri("raw")),
        checkpoints=put("Train", "CheckpointConfig.S3Uri", run_uri("checkpoints")),
        environment=put("Evaluate", "Environment.RUN", {"Get": "Execution.StartDateTime"}),
        hyperparameter=put(
            "Train",
            "HyperParameters.run",
            {"Std:Join": {"On": "", "Values": [{"Get": "Execution.PipelineExecutionArn"}]}},
        ),
    ),
    *_of(
        "timestamp-in-cache-key",
        code=put(
            "Train",
            "InputDataConfig.2.DataSource.S3DataSource.S3Uri",
            "s3://bucket/train-2026-11-21-20-28-23-123/code",
        ),
        input=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/20261121T202823/raw"),
        argument=add("Shard", "AppSpecification.ContainerArguments", "2026-11-21T20:28:23"),
    ),
    *_of(
        "checkpoints-of-one-run",
        id=(
            drop("Train", "/CacheConfig"),
            put("Train", "CheckpointConfig.S3Uri", run_uri("checkpoints")),
        ),
        start=put(
            "Train",
            "CheckpointConfig.S3Uri",
            {"Std:Join": {"On": "/", "Values": ["s3://b", {"Get": "Execution.StartDateTime"}]}},
        ),
    ),
    *_of(
        "retries-on-unsupported-step",
        lambda_step=retry("Notify", MaxAttempts=3),
        condition=retry("Verdict", MaxAttempts=3),
    ),
    *_of(
        "unknown-retry-cause",
        old_name=retry("Train", ExceptionType=["SageMaker.JOB_CAPACITY_ERROR"]),
        bare=retry("Train", ExceptionType=["THROTTLING"]),
        anything=retry("Shard", ExceptionType=["Exception"]),
    ),
    *_of("two-retry-limits", train=retry("Train", MaxAttempts=3, ExpireAfterMin=60)),
    *_of(
        "retry-limit-too-large",
        attempts=retry("Train", MaxAttempts=21),
        interval=retry("Train", MaxAttempts=2, IntervalSeconds=50_000),
        expiry=retry("Shard", ExpireAfterMin=20_000),
        negative=retry("Shard", MaxAttempts=-1),
    ),
    *_of(
        "retry-without-effect",
        tuning=retry("Tune", ExceptionType=["SageMaker.JOB_INTERNAL_ERROR"], MaxAttempts=3),
    ),
    *_of(
        "hasty-retries",
        one_second=retry("Train", IntervalSeconds=1, MaxAttempts=3),
        by_default=put(
            "Train",
            "/RetryPolicies",
            [{"ExceptionType": ["SageMaker.CAPACITY_ERROR"], "MaxAttempts": 3}],
        ),
    ),
    *_of(
        "channel-name-breaks-driver",
        hyphen=channel(ChannelName="train-extra"),
        dot=channel(ChannelName="train.extra"),
    ),
    *_of(
        "hyperparameter-name-breaks-driver",
        dot=hyper("Train", **{"model.dim": "64"}),
        space=hyper("Train", **{"model dim": "64"}),
        slash=hyper("Train", **{"model/dim": "64"}),
    ),
    *_of(
        "hyperparameter-value-breaks-driver",
        apostrophe=hyper("Train", note="it's"),
        json=hyper("Train", workload_config="{'layers': 24}"),
    ),
    *_of(
        "tuning-drops-distribution",
        eight_gpus=put("Tune", f"{TUNED}.ResourceConfig.InstanceType", "ml.p3.16xlarge"),
        two_nodes=put("Tune", f"{TUNED}.ResourceConfig.InstanceCount", 2),
    ),
    *_of(
        "secret-in-plain-text",
        environment=environment("Shard", DB_PASSWORD="hunter2"),
        hyperparameter=hyper("Train", wandb_api_key="abcdef"),
        access_key=environment("Train", AWS_SECRET_ACCESS_KEY="x"),
    ),
    *_of(
        "role-is-no-arn",
        name=put("Train", "RoleArn", "SageMakerRole"),
        user=put("Shard", "RoleArn", "arn:aws:iam::111122223333:user/me"),
    ),
    *_of("no-tags", train=drop("Train", "Tags"), shard=put("Shard", "Tags", [])),
    *_of("uneven-tags", train=put("Train", "Tags", [{"Key": "project", "Value": "a"}])),
    *_of(
        "tag-key-refused",
        reserved=add("Train", "Tags", {"Key": "aws:project", "Value": "a"}),
        twice=add("Train", "Tags", {"Key": "project", "Value": "c"}),
    ),
)

NEAR = (
    *_of("unknown-instance-type", newest=machine("ml.p6-b300.48xlarge")),
    *_of(
        "not-a-processing-type",
        h100=put("Evaluate", f"{SHARD}.InstanceType", "ml.p5.4xlarge"),
        of_training=machine("ml.trn1.2xlarge"),
    ),
    *_of(
        "more-processes-than-gpus",
        eight=environment("Train", PET_NPROC_PER_NODE="8"),
        on_cpu=(machine("ml.m5.large"), environment("Train", PET_NPROC_PER_NODE="4")),
    ),
    *_of(
        "idle-gpus",
        eight=environment("Train", PET_NPROC_PER_NODE="8"),
        no_number=environment("Train", PET_NPROC_PER_NODE="auto"),
    ),
    *_of("instances-share-no-work", one=put("Shard", f"{SHARD}.InstanceCount", 1)),
    *_of("gpu-image-on-cpu-machine", own_image=(machine("ml.m5.large"), image(OWN_IMAGE))),
    *_of("cpu-image-on-accelerator", own_image=image(OWN_IMAGE), h100=machine("ml.p5.48xlarge")),
    *_of(
        "image-of-another-accelerator",
        neuron=(machine("ml.trn1.32xlarge"), neuron()),
        cpu=(machine("ml.m5.large"), image(CPU_IMAGE)),
    ),
    *_of("regions-differ", own_image=image(OWN_IMAGE), bucket=put("Shard", OUTPUT, run_uri("x"))),
    *_of(
        "image-of-another-registry",
        mirror=image(GPU_IMAGE.replace("763104351884", "111122223333")),
        hong_kong=image(
            GPU_IMAGE.replace("us-east-1", "ap-east-1").replace("763104351884", "871362719292")
        ),
    ),
    *_of(
        "training-settings",
        more_of_them=hyper("Train", schedule="wsd", optimizer="lamb", compile="True"),
        of_others=(hyper("Train", strategy="fdsp"), drop("Train", "HyperParameters.workload")),
        known_at_run_time=put(
            "Train", "HyperParameters.strategy", {"Get": "Steps.Shard.ProcessingJobName"}
        ),
    ),
    *_of(
        "strategy-on-wrong-machine", smp=(machine("ml.p5.48xlarge"), hyper("Train", strategy="smp"))
    ),
    *_of(
        "strategy-without-library",
        older_image=(
            image(GPU_IMAGE.replace("2.8.0", "2.3.0")),
            hyper("Train", strategy="smddp", shard_degree="0"),
        ),
        own_image=(image(OWN_IMAGE), hyper("Train", strategy="horovod", shard_degree="0")),
    ),
    *_of("smp-image-without-smp", smp=(image(SMP_IMAGE), hyper("Train", strategy="smp"))),
    *_of(
        "world-does-not-fit",
        four_nodes=nodes(4),
        split=hyper("Train", tensor_parallel="2", pipeline_parallel="2", shard_degree="0"),
        by_the_environment=(
            environment("Train", PET_NPROC_PER_NODE="4"),
            hyper("Train", global_batch="32"),
        ),
    ),
    *_of("tensor-parallel-across-nodes", eight=hyper("Train", tensor_parallel="8")),
    *_of(
        "uniform-shuffle-over-fastfile",
        file=(
            put("Train", "InputDataConfig.0.InputMode", "File"),
            hyper("Train", shuffle="uniform"),
        ),
    ),
    *_of(
        "sharded-channel-of-ours",
        code=put(
            "Train",
            "InputDataConfig.2.DataSource.S3DataSource.S3DataDistributionType",
            "ShardedByS3Key",
        ),
    ),
    *_of(
        "efa-unknown-to-driver",
        told=(
            machine("ml.p5en.48xlarge"),
            environment("Train", FI_PROVIDER="efa", FI_EFA_USE_DEVICE_RDMA="1"),
        ),
        one_node=(machine("ml.p5en.48xlarge"), nodes(1)),
        known=machine("ml.p5e.48xlarge"),
    ),
    *_of("efa-across-subnets", one_node=(TWO_SUBNETS, nodes(1))),
    *_of("nodes-without-efa", one_node=(*ONE_GPU, nodes(1)), cpu=machine("ml.m5.large")),
    *_of(
        "encrypted-collectives",
        one_node=(nodes(1), put("Train", "EnableInterContainerTrafficEncryption", True)),
    ),
    *_of(
        "tracking-from-isolation",
        local=(ISOLATED, hyper("Train", mlflow_tracking_uri="local")),
        not_isolated=hyper("Train", mlflow_tracking_uri="https://mlflow.corp"),
    ),
    *_of("packages-from-isolation", own_image=(ISOLATED, image(OWN_IMAGE))),
    *_of("spot-without-checkpoints", with_them=SPOT, on_demand=drop("Train", "CheckpointConfig")),
    *_of("spot-without-max-wait", with_it=SPOT),
    *_of("max-wait-below-max-runtime", equal=(SPOT[0], put("Train", WAIT, 86_400))),
    *_of("max-wait-without-spot", spot=SPOT),
    *_of(
        "warm-pool-of-spot",
        on_demand=put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 600),
        none=(*SPOT, put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 0)),
    ),
    *_of(
        "warm-pool-too-long",
        an_hour=put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 3600),
    ),
    *_of(
        "checkpoints-elsewhere",
        slash=put("Train", "CheckpointConfig.LocalPath", "/opt/ml/checkpoints/"),
        default=drop("Train", "CheckpointConfig.LocalPath"),
    ),
    *_of(
        "rare-checkpoints",
        on_demand=hyper("Train", checkpoint_interval="20000"),
        often=(*SPOT, hyper("Train", checkpoint_interval="500")),
    ),
    *_of(
        "capacity-not-awaited",
        cpu=(machine("ml.m5.large"), drop("Train", "/RetryPolicies")),
        spot=(*SPOT, drop("Train", "/RetryPolicies")),
    ),
    *_of("training-too-long", four_weeks=put("Train", RUNTIME, 2_419_200)),
    *_of("runtime-beyond-usual-quota", five_days=put("Train", RUNTIME, 432_000)),
    *_of("instances-beyond-usual-quota", twenty=put("Shard", f"{SHARD}.InstanceCount", 20)),
    *_of("no-time-limit", short=put("Shard", RUNTIME, 60)),
    *_of(
        "fastfile-on-processing",
        pipe=put("Shard", "ProcessingInputs.0.S3Input.S3InputMode", "Pipe"),
    ),
    *_of(
        "fastfile-without-prefix",
        file=put("Train", "InputDataConfig.2.DataSource.S3DataSource.S3DataType", "ManifestFile"),
    ),
    *_of(
        "augmented-manifest-without-pipe",
        pipe=(
            put("Train", "InputDataConfig.2.InputMode", "Pipe"),
            put(
                "Train",
                "InputDataConfig.2.DataSource.S3DataSource.S3DataType",
                "AugmentedManifestFile",
            ),
        ),
    ),
    *_of("compression-without-pipe", pipe=channel(CompressionType="Gzip", InputMode="Pipe")),
    *_of(
        "gzip-input-without-pipe",
        pipe=(
            put("Shard", "ProcessingInputs.0.S3Input.S3CompressionType", "Gzip"),
            put("Shard", "ProcessingInputs.0.S3Input.S3InputMode", "Pipe"),
        ),
    ),
    *_of("file-system-streamed", file=fsx()),
    *_of("file-system-without-vpc", with_it=fsx(), none=drop("Train", "VpcConfig")),
    *_of(
        "fsx-directory",
        mount_name=fsx(),
        root_of_efs=add("Train", "InputDataConfig", file_system_channel("EFS", "/")),
    ),
    *_of(
        "fsx-across-subnets",
        efs=(add("Train", "InputDataConfig", file_system_channel("EFS", "/data")), TWO_SUBNETS),
    ),
    *_of(
        "malformed-s3-location",
        bucket_alone=put("Train", "CheckpointConfig.S3Uri", "s3://bucket"),
        parameter=put("Train", "CheckpointConfig.S3Uri", {"Get": "Parameters.InputUri"}),
    ),
    *_of("empty-key-part", last=put("Train", "CheckpointConfig.S3Uri", "s3://bucket/a/")),
    *_of(
        "outputs-collide",
        of_two_branches=(
            put("Publish", OUTPUT, run_uri("published")),
            put("Archive", OUTPUT, run_uri("published")),
        ),
        of_training=put("Train", "OutputDataConfig.S3OutputPath", run_uri("Shard", "out")),
    ),
    *_of(
        "output-overwritten-by-next-run",
        parameter=put("Shard", OUTPUT, {"Get": "Parameters.InputUri"}),
        training=put("Train", "OutputDataConfig.S3OutputPath", "s3://bucket/models"),
    ),
    *_of(
        "key-for-local-disks",
        cpu=put("Shard", f"{SHARD}.VolumeKmsKeyId", KEY),
        machine_of_run_time=(
            put("Train", "ResourceConfig.VolumeKmsKeyId", KEY),
            put("Train", "ResourceConfig.InstanceType", {"Get": "Steps.Shard.ProcessingJobName"}),
        ),
    ),
    *_of("volume-beyond-local-disks", all=put("Evaluate", f"{SHARD}.VolumeSizeInGB", 450)),
    *_of(
        "training-volume-beyond-local-disks",
        all=put("Train", "ResourceConfig.VolumeSizeInGB", 8000),
        ebs=(machine("ml.m5.large"), put("Train", "ResourceConfig.VolumeSizeInGB", 9000)),
    ),
    *_of("volume-too-large", largest=put("Shard", f"{SHARD}.VolumeSizeInGB", 16_384)),
    *_of(
        "volume-smaller-than-checkpoints",
        tabular=hyper("Train", workload_config='{"label":"delay"}'),
        no_json=hyper("Train", workload_config="small"),
    ),
    *_of(
        "shards-larger-than-memory",
        few_processes=put(
            "Shard",
            "AppSpecification.ContainerArguments",
            ["--shard_mb", "1024", "--processes", "4"],
        ),
    ),
    *_of("key-for-volume-only", both=put("Shard", f"{SHARD}.VolumeKmsKeyId", KEY)),
    *_of(
        "cache-on-uncached-type",
        off=put("Register", "/CacheConfig", {"Enabled": False, "ExpireAfter": "P1D"}),
        tuning=put("Tune", "/CacheConfig", {"Enabled": True, "ExpireAfter": "P1D"}),
    ),
    *_of(
        "malformed-cache-expiry",
        aws_spelling=put("Shard", "/CacheConfig.ExpireAfter", "30dT5h"),
        hours=put("Shard", "/CacheConfig.ExpireAfter", "PT12H"),
    ),
    *_of("cache-without-expiry", off=put("Train", "/CacheConfig", {"Enabled": False})),
    *_of(
        "never-hits-the-cache",
        off=(
            put("Train", "/CacheConfig.Enabled", False),
            put("Train", "CheckpointConfig.S3Uri", run_uri("checkpoints")),
        ),
        output=put("Shard", OUTPUT, run_uri("else")),
        name_of_the_pipeline=put("Shard", "Environment.P", {"Get": "Execution.PipelineName"}),
    ),
    *_of(
        "timestamp-in-cache-key",
        date=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/web-2026-10-31"),
        hash=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/20261121202823123456ab"),
        output=put("Train", "OutputDataConfig.S3OutputPath", "s3://b/2026-11-21-20-28-23-123"),
    ),
    *_of(
        "checkpoints-of-one-run",
        pipeline=put(
            "Train",
            "CheckpointConfig.S3Uri",
            {"Std:Join": {"On": "/", "Values": ["s3://b", {"Get": "Execution.PipelineName"}]}},
        ),
    ),
    *_of("retries-on-unsupported-step", none=put("Notify", "/RetryPolicies", [])),
    *_of(
        "unknown-retry-cause",
        all=retry("Shard", ExceptionType=["Step.SERVICE_FAULT", "SageMaker.RESOURCE_LIMIT"]),
    ),
    *_of("two-retry-limits", expiry=retry("Train", ExpireAfterMin=60)),
    *_of("retry-limit-too-large", largest=retry("Train", MaxAttempts=20, IntervalSeconds=43_200)),
    *_of(
        "retry-without-effect",
        throttling=retry("Tune", ExceptionType=["Step.THROTTLING"], MaxAttempts=3),
    ),
    *_of(
        "hasty-retries",
        throttling=retry("Train", ExceptionType=["Step.THROTTLING"], IntervalSeconds=1),
        half_a_minute=retry("Train", IntervalSeconds=30, MaxAttempts=3),
    ),
    *_of(
        "channel-name-breaks-driver",
        underscore=channel(ChannelName="train_extra"),
        without_drivers=(drop("Train", "InputDataConfig.3"), channel(ChannelName="train-extra")),
    ),
    *_of("hyperparameter-name-breaks-driver", hyphen=hyper("Train", **{"model-dim": "64"})),
    *_of("hyperparameter-value-breaks-driver", double=hyper("Train", note='"quoted"')),
    *_of(
        "tuning-drops-distribution",
        one_gpu=put("Tune", f"{TUNED}.ResourceConfig.InstanceType", "ml.p3.2xlarge"),
        classic_toolkit=(
            put("Tune", f"{TUNED}.ResourceConfig.InstanceCount", 2),
            put(
                "Tune",
                f"{TUNED}.StaticHyperParameters.sagemaker_torch_distributed_enabled",
                "true",
            ),
        ),
    ),
    *_of(
        "secret-in-plain-text",
        arn=environment("Shard", DB_SECRET="arn:aws:secretsmanager:us-east-1:1:secret:x"),
        tokenizer=environment("Shard", TOKENIZER="bytes"),
        of_the_sdk=environment("Shard", REMOTE_FUNCTION_SECRET_KEY="ab12"),
    ),
    *_of("role-is-no-arn", path=put("Train", "RoleArn", "arn:aws-cn:iam::111122223333:role/a/b")),
    *_of("no-tags", one=put("Train", "Tags", [{"Key": "project", "Value": "a"}])),
    *_of("uneven-tags", none=drop("Train", "Tags"), values=put("Train", "Tags.0.Value", "other")),
    *_of("tag-key-refused", near=add("Train", "Tags", {"Key": "awsome", "Value": "a"})),
)
