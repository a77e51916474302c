"""Mistakes in the valid definition: data, volumes, cache, retries, drivers, tags."""

from tests.trainyard.validate.rules.definitions import (
    KEY,
    Change,
    add,
    default,
    drop,
    file_system_channel,
    hyper,
    put,
    run_uri,
)
from tests.trainyard.validate.rules.fault import (
    ONE_GPU,
    OUTPUT,
    SHARD,
    TUNED,
    TWO_SUBNETS,
    channel,
    environment,
    fsx,
    of,
    retry,
)

FOLDER = "ProcessingOutputConfig.Outputs.0.S3Output.LocalPath"
TUNE_DATA = "TrainingJobDefinition.InputDataConfig.0.DataSource.S3DataSource.S3Uri"
SUMMARY = "Steps.Tune.TrainingJobSummaries[{}].TrainingJobName"


def input_at(folder: str, **more: object) -> dict[str, object]:
    """An input of a processing job, into ``folder``."""
    return {"InputName": "more", "S3Input": {"S3Uri": "s3://bucket/m", "LocalPath": folder}, **more}


def summary(rank: int) -> Change:
    """The lambda is told the training job of a rank, counted from 0."""
    return put("Notify", "text", {"Get": SUMMARY.format(rank)})


def groups(*names: str, channel: tuple[str, ...] = (), **beside: object) -> tuple[Change, ...]:
    """A heterogeneous cluster for the training step, and the groups of its first channel."""
    described = [
        {"InstanceGroupName": name, "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1}
        for name in names
    ]
    resources = {
        "VolumeSizeInGB": 500,
        **({"InstanceGroups": described} if names else {}),
        **beside,
    }
    source = "InputDataConfig.0.DataSource.S3DataSource.InstanceGroupNames"
    told = (put("Train", source, list(channel)),) if channel else ()
    return put("Train", "ResourceConfig", resources), *told


def transform(split: str | None = None, **members: object) -> tuple[Change, ...]:
    told = (put("Score", "TransformInput.SplitType", split),) if split else ()
    return *(put("Score", name, value) for name, value in members.items()), *told


def joined(**formats: str) -> tuple[Change, ...]:
    """Inputs beside their results; ``formats`` are of TransformInput and TransformOutput."""
    places = {
        "ContentType": "Input",
        "SplitType": "Input",
        "Accept": "Output",
        "AssembleWith": "Output",
    }
    return (
        put("Score", "DataProcessing", {"JoinSource": "Input"}),
        *(
            put("Score", f"Transform{places[name]}.{name}", value)
            for name, value in formats.items()
        ),
    )


LEADING = {"Get": "Steps.Shard.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"}
"""The output of the step Shard: runs/{id}/Shard/out."""

OF_PREFIXES = of(
    "prefix-of-another-location",
    of_an_output=(
        put("Train", "InputDataConfig.0.DataSource.S3DataSource.S3Uri", LEADING),
        put("Evaluate", OUTPUT, run_uri("Shard", "out-small")),
    ),
    of_an_input=(
        put("Train", "InputDataConfig.0.DataSource.S3DataSource.S3Uri", "s3://b/split/test"),
        put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://b/split/test_small/"),
    ),
    of_models=(put("Shard", "ProcessingInputs.0.S3Input.S3Uri", run_uri("tra")),),
    of_checkpoints=(
        put("Train", "CheckpointConfig.S3Uri", "s3://b/ASHA-1"),
        put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://b/ASHA-10/raw"),
    ),
)

OF_TRANSFORM = (
    *of(
        "payload-too-large",
        together=transform(MaxPayloadInMB=50, MaxConcurrentTransforms=3),
        alone=transform(MaxPayloadInMB=101),
    ),
    *of(
        "batches-of-unsplit-input",
        absent=transform(BatchStrategy="MultiRecord"),
        none=transform("None", BatchStrategy="MultiRecord"),
    ),
    *of(
        "filter-without-root",
        of_input=transform(DataProcessing={"InputFilter": "[1:]"}),
        of_output=transform(DataProcessing={"OutputFilter": "SageMakerOutput"}),
    ),
    *of(
        "join-of-unlike-formats",
        content=joined(ContentType="text/csv", Accept="application/json"),
        split=joined(SplitType="Line", AssembleWith="None"),
    ),
)
OF_GROUPS = (
    *of(
        "instance-groups-beside-a-type",
        both=groups("a", InstanceType="ml.p4d.24xlarge", InstanceCount=1),
        count=groups("a", InstanceCount=1),
    ),
    *of(
        "unknown-instance-group",
        misspelt=groups("data", channel=("dta",)),
        no_groups=groups(channel=("data",), InstanceType="ml.p4d.24xlarge", InstanceCount=1),
    ),
    *of("no-such-training-job", beyond_the_job=summary(7), first_beyond=summary(4)),
    *of(
        "no-such-training-job",
        beyond_the_list=(
            put(
                "Tune", "HyperParameterTuningJobConfig.ResourceLimits.MaxNumberOfTrainingJobs", 100
            ),
            summary(60),
        ),
    ),
    *of("retries-ever-sooner", half=retry("Train", BackoffRate=0.5)),
)
NEAR_DATA = (
    *of(
        "payload-too-large",
        just=transform(MaxPayloadInMB=50, MaxConcurrentTransforms=2),
        chunked=transform(MaxPayloadInMB=0, MaxConcurrentTransforms=200),
    ),
    *of(
        "batches-of-unsplit-input",
        lines=transform("Line", BatchStrategy="MultiRecord"),
        single=transform(BatchStrategy="SingleRecord"),
    ),
    *of(
        "filter-without-root",
        root=transform(DataProcessing={"InputFilter": "$[1:]", "OutputFilter": "$['id']"}),
    ),
    *of(
        "join-of-unlike-formats",
        alike=joined(
            ContentType="text/csv", Accept="text/csv", SplitType="Line", AssembleWith="Line"
        ),
        not_joined=put("Score", "TransformOutput.Accept", "application/json"),
    ),
    *of("instance-groups-beside-a-type", alone=groups("a", "b")),
    *of("unknown-instance-group", known=groups("data", "dnn", channel=("dnn",))),
    *of("no-such-training-job", best=summary(0), last=summary(3)),
    *of("retries-ever-sooner", constant=retry("Train", BackoffRate=1.0)),
)
OF_DATA = (
    *OF_PREFIXES,
    *OF_TRANSFORM,
    *OF_GROUPS,
    *of(
        "fastfile-without-prefix",
        manifest=put(
            "Train", "InputDataConfig.0.DataSource.S3DataSource.S3DataType", "ManifestFile"
        ),
    ),
    *of(
        "augmented-manifest-without-pipe",
        fastfile=put(
            "Train", "InputDataConfig.0.DataSource.S3DataSource.S3DataType", "AugmentedManifestFile"
        ),
        file=put(
            "Train", "InputDataConfig.2.DataSource.S3DataSource.S3DataType", "AugmentedManifestFile"
        ),
    ),
    *of(
        "compression-without-pipe",
        file=channel(CompressionType="Gzip"),
        fastfile=channel(CompressionType="Gzip", InputMode="FastFile"),
    ),
    *of(
        "gzip-input-without-pipe",
        shard=put("Shard", "ProcessingInputs.0.S3Input.S3CompressionType", "Gzip"),
    ),
    *of(
        "file-system-streamed",
        fastfile=fsx(InputMode="FastFile"),
        inherited=(
            put("Train", "AlgorithmSpecification.TrainingInputMode", "FastFile"),
            fsx(InputMode=None),
        ),
        pipe=fsx(InputMode="Pipe"),
    ),
    *of(
        "file-system-without-vpc",
        fsx=(fsx(), drop("Train", "VpcConfig")),
        efs=(
            add("Train", "InputDataConfig", file_system_channel("EFS", "/data")),
            drop("Train", "VpcConfig"),
        ),
    ),
    *of(
        "fsx-directory",
        relative=add("Train", "InputDataConfig", file_system_channel(directory="abcd/data")),
        root=add("Train", "InputDataConfig", file_system_channel(directory="/")),
        s3=add("Train", "InputDataConfig", file_system_channel(directory="s3://bucket/data")),
        relative_on_efs=add("Train", "InputDataConfig", file_system_channel("EFS", "data")),
    ),
    *of("fsx-across-subnets", two=(fsx(), TWO_SUBNETS)),
    *of(
        "malformed-s3-location",
        s3a=put("Train", "CheckpointConfig.S3Uri", "s3a://bucket/checkpoints"),
        capitals=put("Train", "CheckpointConfig.S3Uri", "s3://Bucket/checkpoints"),
        one_slash=put("Shard", OUTPUT, "s3:/bucket/out"),
        bucket_in_a_join=put(
            "Train",
            "OutputDataConfig.S3OutputPath",
            {"Std:Join": {"On": "/", "Values": ["s3:/", "My_Bucket", {"Get": "Parameters.X"}]}},
        ),
        beginning_of_a_bucket=put(
            "Train",
            "OutputDataConfig.S3OutputPath",
            {"Std:Join": {"On": "", "Values": ["s3://my_", {"Get": "Parameters.X"}]}},
        ),
        path=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "/data/raw"),
        https=put(
            "Shard", "ProcessingInputs.0.S3Input.S3Uri", "https://bucket.s3.amazonaws.com/raw"
        ),
        underscore=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://my_bucket/raw"),
        in_a_join=put(
            "Train",
            "OutputDataConfig.S3OutputPath",
            {"Std:Join": {"On": "/", "Values": ["bucket/runs", "train"]}},
        ),
    ),
    *of(
        "empty-key-part",
        literal=put("Train", "CheckpointConfig.S3Uri", "s3://bucket//checkpoints"),
        inside=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/raw//2026"),
    ),
    *of(
        "outputs-collide",
        of_two_steps=put("Evaluate", OUTPUT, run_uri("Shard", "out")),
        of_one_step=add(
            "Shard",
            "ProcessingOutputConfig.Outputs",
            {"OutputName": "b", "S3Output": {"S3Uri": run_uri("Shard", "out")}},
        ),
        of_a_branch=put("Publish", OUTPUT, run_uri("Evaluate", "out")),
    ),
    *of(
        "reads-without-waiting",
        the_same=(
            put("Tune", TUNE_DATA, "s3://bucket/in"),
            put("Publish", OUTPUT, "s3://bucket/in/"),
        ),
        a_part=(
            put("Score", "TransformInput.DataSource.S3DataSource.S3Uri", "s3://bucket/a/part"),
            put("Shard", OUTPUT, {"Get": "Parameters.InputUri"}),
            default("InputUri", "s3://bucket/a"),
        ),
        the_whole=put("Tune", TUNE_DATA, run_uri("Shard")),
        of_a_run=put(
            "Score", "TransformInput.DataSource.S3DataSource.S3Uri", run_uri("Evaluate", "out")
        ),
        models=put("Score", "TransformInput.DataSource.S3DataSource.S3Uri", run_uri("train")),
        model=put("Tune", TUNE_DATA, run_uri("score", "x")),
    ),
    *of(
        "inputs-share-a-folder",
        two=add("Shard", "ProcessingInputs", input_at("/opt/ml/processing/input/raw")),
        slash=add("Shard", "ProcessingInputs", input_at("/opt/ml/processing/input//raw/")),
        query=add(
            "Shard",
            "ProcessingInputs",
            {
                "InputName": "q",
                "DatasetDefinition": {"LocalPath": "/opt/ml/processing/input/raw"},
            },
        ),
    ),
    *of(
        "folder-outside-processing",
        output=put("Shard", FOLDER, "/opt/ml/output"),
        sibling=put("Shard", FOLDER, "/opt/ml/processing2/out"),
        above=put("Shard", FOLDER, "/opt/ml/processing/../out"),
        input=put("Shard", "ProcessingInputs.0.S3Input.LocalPath", "/data"),
    ),
    *of(
        "output-overwritten-by-next-run",
        processing=put("Shard", OUTPUT, "s3://bucket/shards"),
        transform=put("Score", "TransformOutput.S3OutputPath", "s3://bucket/scores"),
        join_of_words=put(
            "Shard", OUTPUT, {"Std:Join": {"On": "/", "Values": ["s3://bucket", "shards"]}}
        ),
    ),
    *of(
        "key-for-local-disks",
        train=put("Train", "ResourceConfig.VolumeKmsKeyId", KEY),
        evaluate=put("Evaluate", f"{SHARD}.VolumeKmsKeyId", KEY),
        transform=(
            put("Score", "TransformResources.VolumeKmsKeyId", KEY),
            put("Score", "TransformResources.InstanceType", "ml.g4dn.xlarge"),
        ),
    ),
    *of("volume-beyond-local-disks", evaluate=put("Evaluate", f"{SHARD}.VolumeSizeInGB", 500)),
    *of(
        "training-volume-beyond-local-disks",
        p4d=put("Train", "ResourceConfig.VolumeSizeInGB", 9000),
        g5=(*ONE_GPU, put("Train", "ResourceConfig.VolumeSizeInGB", 451)),
    ),
    *of(
        "volume-too-large",
        train=put("Train", "ResourceConfig.VolumeSizeInGB", 20_000),
        shard=put("Shard", f"{SHARD}.VolumeSizeInGB", 16_385),
    ),
    *of(
        "key-for-volume-only",
        shard=(
            put("Shard", f"{SHARD}.VolumeKmsKeyId", KEY),
            drop("Shard", "ProcessingOutputConfig.KmsKeyId"),
        ),
        tuning=put("Tune", f"{TUNED}.ResourceConfig.VolumeKmsKeyId", KEY),
    ),
    *of(
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
    *of(
        "timestamp-in-cache-key",
        code=put(
            "Train",
            "InputDataConfig.2.DataSource.S3DataSource.S3Uri",
            "s3://bucket/train-2026-11-21-20-28-23-123/code",
        ),
        input=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/20261121T202823/raw"),
        argument=add("Shard", "AppSpecification.ContainerArguments", "2026-11-21T20:28:23"),
    ),
    *of(
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
    *of(
        "retry-without-effect",
        tuning=retry("Tune", ExceptionType=["SageMaker.JOB_INTERNAL_ERROR"], MaxAttempts=3),
    ),
    *of(
        "hasty-retries",
        one_second=retry("Train", IntervalSeconds=1, MaxAttempts=3),
        by_default=put(
            "Train",
            "/RetryPolicies",
            [{"ExceptionType": ["SageMaker.CAPACITY_ERROR"], "MaxAttempts": 3}],
        ),
    ),
    *of(
        "channel-name-breaks-driver",
        hyphen=channel(ChannelName="train-extra"),
        dot=channel(ChannelName="train.extra"),
    ),
    *of(
        "hyperparameter-name-breaks-driver",
        dot=hyper("Train", **{"model.dim": "64"}),
        space=hyper("Train", **{"model dim": "64"}),
        slash=hyper("Train", **{"model/dim": "64"}),
    ),
    *of(
        "hyperparameter-value-breaks-driver",
        apostrophe=hyper("Train", note="it's"),
        json=hyper("Train", workload_config="{'layers': 24}"),
    ),
    *of(
        "tuning-drops-distribution",
        eight_gpus=put("Tune", f"{TUNED}.ResourceConfig.InstanceType", "ml.p3.16xlarge"),
        two_nodes=put("Tune", f"{TUNED}.ResourceConfig.InstanceCount", 2),
    ),
    *of(
        "secret-in-plain-text",
        environment=environment("Shard", DB_PASSWORD="hunter2"),
        hyperparameter=hyper("Train", wandb_api_key="abcdef"),
        access_key=environment("Train", AWS_SECRET_ACCESS_KEY="x"),
    ),
    *of("no-tags", train=drop("Train", "Tags"), shard=put("Shard", "Tags", [])),
    *of("uneven-tags", train=put("Train", "Tags", [{"Key": "project", "Value": "a"}])),
    *of(
        "tag-key-refused",
        reserved=add("Train", "Tags", {"Key": "aws:project", "Value": "a"}),
    ),
)
