"""Mistakes in the valid definition: machines, data, cache, retries, drivers, tags, secrets."""

from functools import partial

from tests.trainyard.validate.rules.definitions import (
    CPU_IMAGE,
    GPU_IMAGE,
    KEY,
    REGISTRY,
    RUNTIME,
    WAIT,
    Change,
    add,
    default,
    depends_on,
    drop,
    file_system_channel,
    hyper,
    put,
    run_uri,
)
from tests.trainyard.validate.rules.fault import (
    ISOLATED,
    LATER,
    ONE_GPU,
    OUTPUT,
    OWN_IMAGE,
    SPOT,
    TUNED,
    TWO_SUBNETS,
    URI,
    channel,
    checkpoints,
    environment,
    fsx,
    get,
    image,
    job_image,
    join,
    machine,
    near,
    neuron,
    nodes,
    output_key,
    retry,
    seed,
)

FOLDER = "ProcessingOutputConfig.Outputs.0.S3Output.LocalPath"
RAW = "/opt/ml/processing/input/raw"
MOST_JOBS = "HyperParameterTuningJobConfig.ResourceLimits.MaxNumberOfTrainingJobs"
HTTPS = "https://bucket.s3.amazonaws.com/raw"
MLFLOW = "https://mlflow.corp"
SHARDS = get("Steps.Shard.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri")
"""The output of the step Shard: runs/{id}/Shard/out."""
ENCRYPTED = put("Train", "EnableInterContainerTrafficEncryption", True)
GZIP = put("Shard", "ProcessingInputs.0.S3Input.S3CompressionType", "Gzip")
NO_DRIVERS = drop("Train", "InputDataConfig.3")
NO_RETRIES = drop("Train", "/RetryPolicies")
NO_VPC = drop("Train", "VpcConfig")
NO_CHECKPOINTS = drop("Train", "CheckpointConfig")
PIPE = put("Train", "InputDataConfig.2.InputMode", "Pipe")
ISOLATED_EVALUATION = put("Evaluate", "NetworkConfig.EnableNetworkIsolation", True)
ONE_TAG = put("Train", "Tags", [{"Key": "project", "Value": "a"}])
ONE_A100 = {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1}
DEEP_LEARNING, HONG_KONG = "763104351884", "871362719292"
CPU, P5EN = machine("ml.m5.large"), machine("ml.p5en.48xlarge")
MANIFEST, AUGMENTED = "ManifestFile", "AugmentedManifestFile"
VOLUME_KEY = put("Train", "ResourceConfig.VolumeKmsKeyId", KEY)

hypers, variables = partial(hyper, "Train"), partial(environment, "Train")
models = partial(put, "Train", "OutputDataConfig.S3OutputPath")
volume = partial(put, "Train", "ResourceConfig.VolumeSizeInGB")
keep_alive = partial(put, "Train", "ResourceConfig.KeepAlivePeriodInSeconds")
runtime, max_wait = partial(put, "Train", RUNTIME), partial(put, "Train", WAIT)
folder = partial(put, "Shard", FOLDER)
scored = partial(put, "Score", "TransformInput.DataSource.S3DataSource.S3Uri")
tune_data = partial(put, "Tune", f"{TUNED}.InputDataConfig.0.DataSource.S3DataSource.S3Uri")


def processes(count: str) -> Change:
    return variables(PET_NPROC_PER_NODE=count)


def cluster(step: str, field: str, value: object) -> Change:
    return put(step, f"ProcessingResources.ClusterConfig.{field}", value)


def tuned_on(field: str, value: object) -> Change:
    return put("Tune", f"{TUNED}.ResourceConfig.{field}", value)


def data_type(channel: int, kind: str) -> Change:
    return put("Train", f"InputDataConfig.{channel}.DataSource.S3DataSource.S3DataType", kind)


def channel_uri(channel: int, uri: object) -> Change:
    return put("Train", f"InputDataConfig.{channel}.DataSource.S3DataSource.S3Uri", uri)


def writes(step: str, uri: object) -> Change:
    return put(step, OUTPUT, uri)


def mount(kind: str = "FSxLustre", directory: str = "/abcd/data") -> Change:
    return add("Train", "InputDataConfig", file_system_channel(kind, directory))


def one_more(folder: str, **more: object) -> Change:
    """Another input of the step Shard, into ``folder``."""
    s3 = {"S3Uri": "s3://bucket/m", "LocalPath": folder}
    return add("Shard", "ProcessingInputs", {"InputName": "more", "S3Input": s3, **more})


def argument(*values: str) -> Change:
    return put("Shard", "AppSpecification.ContainerArguments", list(values))


def tag(key: str) -> Change:
    return add("Train", "Tags", {"Key": key, "Value": "a"})


def reads(step: str, uri: object) -> Change:
    return put(step, "ProcessingInputs.0.S3Input.S3Uri", uri)


def summary(rank: int) -> Change:
    """The lambda is told the training job of a rank, counted from 0."""
    return put("Notify", "text", get(f"Steps.Tune.TrainingJobSummaries[{rank}].TrainingJobName"))


def parameter(name: str, value: str) -> Change:
    """One more parameter with this default."""
    entry = {"Name": name, "Type": "String", "DefaultValue": value}
    return lambda definition: definition["Parameters"].append(entry)


def groups(*names: str, channel: str = "", **beside: object) -> tuple[Change, ...]:
    """A heterogeneous cluster for the training step, and the groups of its first channel."""
    described = [
        {"InstanceGroupName": name, "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1}
        for name in names
    ]
    resources = {"VolumeSizeInGB": 500, "InstanceGroups": described, **beside}
    source = "InputDataConfig.0.DataSource.S3DataSource.InstanceGroupNames"
    told = (put("Train", source, [channel]),) if channel else ()
    return put("Train", "ResourceConfig", {k: v for k, v in resources.items() if v}), *told


def payload(size: int, *at_once: int) -> tuple[Change, ...]:
    many = [put("Score", "MaxConcurrentTransforms", number) for number in at_once]
    return put("Score", "MaxPayloadInMB", size), *many


def batches(strategy: str, split: str | None = None) -> tuple[Change, ...]:
    told = (put("Score", "TransformInput.SplitType", split),) if split else ()
    return put("Score", "BatchStrategy", strategy), *told


def filters(**paths: str) -> Change:
    return put("Score", "DataProcessing", paths)


def join_results(**formats: str) -> tuple[Change, ...]:
    """Inputs beside their results; ``formats`` are of TransformInput and TransformOutput."""
    holders = {"ContentType": "Input", "SplitType": "Input"}
    return (
        put("Score", "DataProcessing", {"JoinSource": "Input"}),
        *(put("Score", f"Transform{holders.get(n, 'Output')}.{n}", v) for n, v in formats.items()),
    )


OF_JOBS = (
    *seed("more-processes-than-gpus", processes("16"), (*ONE_GPU, processes("2"))),
    *near("more-processes-than-gpus", processes("8"), (CPU, processes("4"))),
    *seed("idle-gpus", (processes("1"), hypers(shard_degree="2")), processes("4")),
    *near("idle-gpus", processes("8"), processes("auto")),
    *seed(
        "instances-share-no-work",
        put("Shard", "ProcessingInputs.0.S3Input.S3DataDistributionType", "FullyReplicated"),
        cluster("Evaluate", "InstanceCount", 4),
    ),
    *near(
        "instances-share-no-work",
        cluster("Shard", "InstanceCount", 1),
        put("Shard", "ProcessingInputs", []),
    ),
    *seed(
        "gpu-image-on-cpu-machine",
        machine("ml.c5.18xlarge"),
        job_image("Shard", GPU_IMAGE),
        (CPU, image(f"{REGISTRY}/pytorch-training:2.5.1-cu124-py311")),
    ),
    *near("gpu-image-on-cpu-machine", (CPU, image(OWN_IMAGE))),
    *seed("cpu-image-on-accelerator", image(CPU_IMAGE), job_image("Evaluate", CPU_IMAGE)),
    *near("cpu-image-on-accelerator", image(OWN_IMAGE)),
    *seed("image-of-another-accelerator", machine("ml.trn1.32xlarge"), neuron()),
    *near(
        "image-of-another-accelerator",
        (machine("ml.trn1.32xlarge"), neuron()),
        (CPU, image(CPU_IMAGE)),
    ),
    *seed(
        "regions-differ",
        image(GPU_IMAGE.replace("us-east-1", "eu-west-1")),
        output_key("arn:aws:kms:us-west-2:111122223333:key/1234abcd"),
        job_image("Publish", CPU_IMAGE.replace("us-east-1", "us-west-2")),
    ),
    *near("regions-differ", image(OWN_IMAGE), writes("Shard", run_uri("x"))),
    *seed(
        "image-of-another-registry",
        image(GPU_IMAGE.replace("us-east-1", "ap-east-1")),
        image(GPU_IMAGE.replace(DEEP_LEARNING, HONG_KONG)),
    ),
    *near(
        "image-of-another-registry",
        image(GPU_IMAGE.replace(DEEP_LEARNING, "111122223333")),
        image(GPU_IMAGE.replace(DEEP_LEARNING, HONG_KONG).replace("us-east-1", "ap-east-1")),
    ),
    *seed("efa-unknown-to-driver", P5EN, machine("ml.g6e.48xlarge")),
    *near(
        "efa-unknown-to-driver",
        (P5EN, variables(FI_PROVIDER="efa")),
        (P5EN, nodes(1)),
        machine("ml.p5e.48xlarge"),
        (P5EN, NO_DRIVERS),
        ONE_GPU,
        machine("ml.m6i.32xlarge"),
    ),
    *seed("efa-across-subnets", TWO_SUBNETS),
    *near("efa-across-subnets", (TWO_SUBNETS, nodes(1)), (TWO_SUBNETS, machine("ml.p3.16xlarge"))),
    *seed("nodes-without-efa", ONE_GPU),
    *near("nodes-without-efa", (*ONE_GPU, nodes(1)), CPU),
    *seed("encrypted-collectives", ENCRYPTED, (*ONE_GPU, ENCRYPTED)),
    *near("encrypted-collectives", (nodes(1), ENCRYPTED), (CPU, ENCRYPTED)),
    *seed(
        "tracking-from-isolation",
        (ISOLATED, variables(MLFLOW_TRACKING_URI=MLFLOW)),
        (ISOLATED, hypers(mlflow_tracking_uri=MLFLOW)),
        (ISOLATED, hypers(mlflow_tracking_uri="arn:aws:sagemaker:us-east-1:1:mlflow-app/x")),
        (ISOLATED_EVALUATION, environment("Evaluate", MLFLOW_TRACKING_URI=MLFLOW)),
    ),
    *near(
        "tracking-from-isolation",
        (ISOLATED, hypers(mlflow_tracking_uri="local")),
        hypers(mlflow_tracking_uri=MLFLOW),
    ),
    *seed(
        "spot-without-checkpoints",
        (*SPOT, NO_CHECKPOINTS),
        (*SPOT, drop("Train", "CheckpointConfig.S3Uri")),
    ),
    *near("spot-without-checkpoints", SPOT, NO_CHECKPOINTS),
    *seed(
        "spot-without-max-wait",
        put("Train", "EnableManagedSpotTraining", True),
        put("Tune", f"{TUNED}.EnableManagedSpotTraining", True),
    ),
    *near("spot-without-max-wait", SPOT),
    *seed("max-wait-below-max-runtime", (SPOT[0], max_wait(86_399))),
    *near("max-wait-below-max-runtime", (SPOT[0], max_wait(86_400))),
    *seed(
        "max-wait-without-spot",
        max_wait(172_800),
        (drop("Train", "EnableManagedSpotTraining"), max_wait(172_800)),
    ),
    *near("max-wait-without-spot", SPOT),
    *seed("warm-pool-of-spot", (*SPOT, keep_alive(600))),
    *near("warm-pool-of-spot", keep_alive(600), (*SPOT, keep_alive(0))),
    *seed("warm-pool-too-long", keep_alive(7200)),
    *near("warm-pool-too-long", keep_alive(3600)),
    *seed("capacity-not-awaited", NO_RETRIES, retry("Train", ExceptionType=["Step.THROTTLING"])),
    *near(
        "capacity-not-awaited",
        (CPU, NO_RETRIES),
        (*SPOT, NO_RETRIES),
        tuned_on("InstanceType", "ml.g5.xlarge"),
    ),
    *seed("training-too-long", runtime(31_536_000)),
    *near("training-too-long", runtime(2_419_200)),
    *seed("runtime-beyond-usual-quota", runtime(2_419_200), put("Shard", RUNTIME, 432_001)),
    *near("runtime-beyond-usual-quota", runtime(432_000)),
    *seed("instances-beyond-usual-quota", cluster("Shard", "InstanceCount", 21)),
    *near("instances-beyond-usual-quota", cluster("Shard", "InstanceCount", 20)),
    *seed("no-time-limit", drop("Shard", "StoppingCondition")),
    *near("no-time-limit", put("Shard", RUNTIME, 60)),
    *seed(
        "prefix-of-another-location",
        (channel_uri(0, SHARDS), writes("Evaluate", run_uri("Shard", "out-small"))),
        (channel_uri(0, "s3://b/split/test"), reads("Shard", "s3://b/split/test_small/")),
        reads("Shard", run_uri("tra")),
        (checkpoints("s3://b/ASHA-1"), reads("Shard", "s3://b/ASHA-10/raw")),
    ),
    *near(
        "prefix-of-another-location",
        (checkpoints("s3://b/ASHA-1/"), reads("Shard", "s3://b/ASHA-10/raw")),
        (checkpoints("s3://b/ASHA-1"), reads("Shard", "s3://b/ASHA-1/raw")),
        reads("Shard", run_uri("train")),
        (
            reads("Shard", "s3://b/all"),
            put("Shard", "ProcessingInputs.0.S3Input.S3DataType", "ManifestFile"),
            checkpoints("s3://b/all-checkpoints"),
        ),
    ),
    *seed("payload-too-large", payload(50, 3), payload(101)),
    *near("payload-too-large", payload(50, 2), payload(0, 200)),
    *seed("batches-of-unsplit-input", batches("MultiRecord"), batches("MultiRecord", "None")),
    *near("batches-of-unsplit-input", batches("MultiRecord", "Line"), batches("SingleRecord")),
    *seed(
        "filter-without-root", filters(InputFilter="[1:]"), filters(OutputFilter="SageMakerOutput")
    ),
    *near("filter-without-root", filters(InputFilter="$[1:]", OutputFilter="$['id']")),
    *seed(
        "join-of-unlike-formats",
        join_results(ContentType="text/csv", Accept="application/json"),
        join_results(SplitType="Line", AssembleWith="None"),
    ),
    *near(
        "join-of-unlike-formats",
        join_results(
            ContentType="text/csv", Accept="text/csv", SplitType="Line", AssembleWith="Line"
        ),
        put("Score", "TransformOutput.Accept", "application/json"),
    ),
    *seed("instance-groups-beside-a-type", groups("a", **ONE_A100), groups("a", InstanceCount=1)),
    *near("instance-groups-beside-a-type", groups("a", "b")),
    *seed(
        "unknown-instance-group", groups("data", channel="dta"), groups(channel="data", **ONE_A100)
    ),
    *near("unknown-instance-group", groups("data", "dnn", channel="dnn")),
    *seed(
        "no-such-training-job", summary(7), summary(4), (put("Tune", MOST_JOBS, 100), summary(60))
    ),
    *near("no-such-training-job", summary(0), summary(3)),
    *seed("retries-ever-sooner", retry("Train", BackoffRate=0.5)),
    *near("retries-ever-sooner", retry("Train", BackoffRate=1.0)),
    *seed("fastfile-without-prefix", data_type(0, MANIFEST)),
    *near("fastfile-without-prefix", data_type(2, MANIFEST)),
    *seed("augmented-manifest-without-pipe", data_type(0, AUGMENTED), data_type(2, AUGMENTED)),
    *near("augmented-manifest-without-pipe", (PIPE, data_type(2, AUGMENTED))),
    *seed("compression-without-pipe", channel(CompressionType="Gzip")),
    *near("compression-without-pipe", channel(CompressionType="Gzip", InputMode="Pipe")),
    *seed("gzip-input-without-pipe", GZIP),
    *near(
        "gzip-input-without-pipe",
        (GZIP, put("Shard", "ProcessingInputs.0.S3Input.S3InputMode", "Pipe")),
    ),
    *seed(
        "file-system-streamed",
        fsx(InputMode="FastFile"),
        (put("Train", "AlgorithmSpecification.TrainingInputMode", "FastFile"), fsx(InputMode=None)),
    ),
    *near("file-system-streamed", fsx()),
    *seed("file-system-without-vpc", (fsx(), NO_VPC), (mount("EFS", "/data"), NO_VPC)),
    *near("file-system-without-vpc", fsx(), NO_VPC),
    *seed(
        "fsx-directory", mount(directory="abcd/data"), mount(directory="/"), mount("EFS", "data")
    ),
    *near("fsx-directory", fsx(), mount("EFS", "/data"), mount("EFS", "/")),
    *seed("fsx-across-subnets", (fsx(), TWO_SUBNETS)),
    *near("fsx-across-subnets", fsx(), (mount("EFS", "/data"), TWO_SUBNETS)),
    *seed(
        "malformed-s3-location",
        checkpoints("s3a://bucket/checkpoints"),
        writes("Shard", "s3:/bucket/out"),
        models(join("s3:/", "My_Bucket", URI)),
        models(join("s3://my_", URI, on="")),
        reads("Shard", "/data/raw"),
        reads("Shard", HTTPS),
        reads("Shard", "s3://my_bucket/raw"),
        models(join("bucket/runs", "train")),
    ),
    *near(
        "malformed-s3-location",
        checkpoints("s3://bucket"),
        put("Register", "InferenceSpecification.Containers.0.ModelDataUrl", HTTPS),
        checkpoints(URI),
        models(join("s3:/", "bucket", URI, "a")),
        models(join("s3:/", URI, "a")),
        models(join("s3://", URI, "a", on="")),
        models(join("s3://team-", URI, "a", on="")),
        models(join("s3", URI, "a", on=":")),
    ),
    *seed(
        "empty-key-part",
        checkpoints("s3://bucket//checkpoints"),
        reads("Shard", "s3://bucket/raw//2026"),
    ),
    *near("empty-key-part", checkpoints("s3://bucket/a/")),
    *seed(
        "outputs-collide",
        writes("Evaluate", run_uri("Shard", "out")),
        add(
            "Shard",
            "ProcessingOutputConfig.Outputs",
            {"OutputName": "b", "S3Output": {"S3Uri": run_uri("Shard", "out")}},
        ),
        writes("Publish", run_uri("Evaluate", "out")),
    ),
    *near(
        "outputs-collide",
        (writes("Publish", run_uri("published")), writes("Archive", run_uri("published"))),
        models(run_uri("Shard", "out")),
    ),
    *seed(
        "reads-without-waiting",
        (tune_data("s3://bucket/in"), writes("Publish", "s3://bucket/in/")),
        (scored("s3://bucket/a/part"), writes("Shard", URI), default("InputUri", "s3://bucket/a")),
        tune_data(run_uri("Shard")),
        scored(run_uri("Evaluate", "out")),
        scored(run_uri("train")),
        tune_data(run_uri("score", "x")),
    ),
    *near(
        "reads-without-waiting",
        (writes("Publish", "s3://bucket/in"), depends_on("Tune", "Publish")),
        (reads("Evaluate", run_uri("Shard", "out")), depends_on("Evaluate", "Train")),
        (reads("Shard", "s3://bucket/state"), writes("Evaluate", "s3://bucket/state")),
        (reads("Shard", "s3://bucket/state"), writes("Shard", "s3://bucket/state")),
        (reads("Publish", "s3://bucket/x"), writes("Archive", "s3://bucket/x")),
        tune_data(run_uri("Shard", "out-2")),
        tune_data(run_uri("train", "data")),
    ),
    *seed(
        "inputs-share-a-folder",
        one_more(RAW),
        one_more("/opt/ml/processing/input//raw/"),
        add(
            "Shard", "ProcessingInputs", {"InputName": "q", "DatasetDefinition": {"LocalPath": RAW}}
        ),
    ),
    *near(
        "inputs-share-a-folder",
        one_more("/opt/ml/processing/input"),
        one_more(RAW, AppManaged=True),
        folder(RAW),
    ),
    *seed(
        "folder-outside-processing",
        folder("/opt/ml/output"),
        folder("/opt/ml/processing2/out"),
        folder("/opt/ml/processing/../out"),
        put("Shard", "ProcessingInputs.0.S3Input.LocalPath", "/data"),
    ),
    *near(
        "folder-outside-processing",
        folder("/opt/ml/processing/out/"),
        folder("/opt/ml/processing"),
        one_more("/data", AppManaged=True),
        folder(LATER),
    ),
    *seed(
        "output-overwritten-by-next-run",
        writes("Shard", "s3://bucket/shards"),
        put("Score", "TransformOutput.S3OutputPath", "s3://bucket/scores"),
        writes("Shard", join("s3://bucket", "shards")),
    ),
    *near("output-overwritten-by-next-run", writes("Shard", URI), models("s3://bucket/models")),
    *seed(
        "key-for-local-disks",
        VOLUME_KEY,
        cluster("Evaluate", "VolumeKmsKeyId", KEY),
        (
            put("Score", "TransformResources.VolumeKmsKeyId", KEY),
            put("Score", "TransformResources.InstanceType", "ml.g4dn.xlarge"),
        ),
    ),
    *near(
        "key-for-local-disks",
        cluster("Shard", "VolumeKmsKeyId", KEY),
        (VOLUME_KEY, put("Train", "ResourceConfig.InstanceType", LATER)),
    ),
    *seed("volume-beyond-local-disks", cluster("Evaluate", "VolumeSizeInGB", 500)),
    *near("volume-beyond-local-disks", cluster("Evaluate", "VolumeSizeInGB", 450)),
    *seed("training-volume-beyond-local-disks", volume(9000), (*ONE_GPU, volume(451))),
    *near("training-volume-beyond-local-disks", volume(8000), (CPU, volume(9000))),
    *seed("volume-too-large", cluster("Shard", "VolumeSizeInGB", 16_385)),
    *near("volume-too-large", cluster("Shard", "VolumeSizeInGB", 16_384)),
    *seed(
        "key-for-volume-only",
        (cluster("Shard", "VolumeKmsKeyId", KEY), drop("Shard", "ProcessingOutputConfig.KmsKeyId")),
        tuned_on("VolumeKmsKeyId", KEY),
    ),
    *near("key-for-volume-only", cluster("Shard", "VolumeKmsKeyId", KEY)),
    *seed(
        "never-hits-the-cache",
        reads("Shard", run_uri("raw")),
        checkpoints(run_uri("checkpoints")),
        put("Evaluate", "Environment.RUN", get("Execution.StartDateTime")),
        put("Train", "HyperParameters.run", join(get("Execution.PipelineExecutionArn"))),
    ),
    *near(
        "never-hits-the-cache",
        (put("Train", "/CacheConfig.Enabled", False), checkpoints(run_uri("checkpoints"))),
        writes("Shard", run_uri("else")),
        put("Shard", "Environment.P", get("Execution.PipelineName")),
    ),
    *seed(
        "timestamp-in-cache-key",
        channel_uri(2, "s3://bucket/train-2026-11-21-20-28-23-123/code"),
        reads("Shard", "s3://bucket/20261121T202823/raw"),
        argument("2026-11-21T20:28:23"),
    ),
    *near(
        "timestamp-in-cache-key",
        reads("Shard", "s3://bucket/web-2026-10-31"),
        reads("Shard", "s3://bucket/20261121202823123456ab"),
        models("s3://b/2026-11-21-20-28-23-123"),
    ),
    *seed(
        "checkpoints-of-one-run",
        (drop("Train", "/CacheConfig"), checkpoints(run_uri("checkpoints"))),
        checkpoints(join("s3://b", get("Execution.StartDateTime"))),
    ),
    *near("checkpoints-of-one-run", checkpoints(join("s3://b", get("Execution.PipelineName")))),
    *seed(
        "retry-without-effect",
        retry("Tune", ExceptionType=["SageMaker.JOB_INTERNAL_ERROR"], MaxAttempts=3),
    ),
    *near("retry-without-effect", retry("Tune", ExceptionType=["Step.THROTTLING"], MaxAttempts=3)),
    *seed(
        "hasty-retries",
        retry("Train", IntervalSeconds=1, MaxAttempts=3),
        retry("Train", IntervalSeconds=None, MaxAttempts=3),
    ),
    *near(
        "hasty-retries",
        retry("Train", ExceptionType=["Step.THROTTLING"], IntervalSeconds=1),
        retry("Train", IntervalSeconds=30, MaxAttempts=3),
    ),
    *seed("channel-name-breaks-driver", channel(ChannelName="train-extra")),
    *near(
        "channel-name-breaks-driver",
        channel(ChannelName="train_extra"),
        (NO_DRIVERS, channel(ChannelName="train-extra")),
    ),
    *seed(
        "hyperparameter-name-breaks-driver",
        hypers(**{"model.dim": "64"}),
        hypers(**{"model/dim": "64"}),
    ),
    *near(
        "hyperparameter-name-breaks-driver",
        hypers(**{"model-dim": "64"}),
        (NO_DRIVERS, hypers(**{"a.b": "64"})),
    ),
    *seed(
        "hyperparameter-value-breaks-driver",
        hypers(note="it's"),
        hypers(workload_config="{'layers': 24}"),
    ),
    *near(
        "hyperparameter-value-breaks-driver",
        hypers(note='"quoted"'),
        (NO_DRIVERS, hypers(note="it's")),
    ),
    *seed(
        "tuning-drops-distribution",
        tuned_on("InstanceType", "ml.p3.16xlarge"),
        tuned_on("InstanceCount", 2),
    ),
    *near(
        "tuning-drops-distribution",
        tuned_on("InstanceType", "ml.p3.2xlarge"),
        (
            tuned_on("InstanceCount", 2),
            put(
                "Tune", f"{TUNED}.StaticHyperParameters.sagemaker_torch_distributed_enabled", "true"
            ),
        ),
    ),
    *seed(
        "secret-in-plain-text",
        environment("Shard", DB_PASSWORD="hunter2"),
        hypers(wandb_api_key="abcdef"),
        hypers(database="postgresql://ml:hunter2@db:5432/runs"),
        variables(AWS_SECRET_ACCESS_KEY="x"),
        variables(HF_TOKEN="hf_abcdefghij"),
        hypers(accessToken="abcdefghij"),
        variables(TRACKING="https://ci:hunter2@mlflow.example.com/"),
        environment("Shard", SOURCE="https://example.com/x?id=1&access_token=abcdef"),
        argument("--api_key=abcdef"),
        argument("--hub-token", "abcdef"),
        parameter("DbPassword", "hunter2"),
        parameter("Database", "mysql://ml:hunter2@db/runs"),
        put("Notify", "webhook_token", "abcdef"),
        (variables(DB_PASSWORD=URI), default("InputUri", "hunter2")),
    ),
    *near(
        "secret-in-plain-text",
        hypers(pad_token="<pad>", max_new_tokens="9"),
        hypers(token="7"),
        environment("Shard", TOKENIZERS_PARALLELISM="false"),
        environment("Shard", TRACKING="https://mlflow.example.com:8080/a@b"),
        environment("Shard", TRACKING="https://ci:${PASSWORD}@mlflow.example.com/"),
        environment("Shard", DB_PASSWORD_FILE="/run/x", API_TOKEN_SECRET_NAME="prod/a"),
        parameter("Tokenizer", "s3://bucket/tokenizer"),
        argument("--use_token", "--key", "a"),
        environment("Shard", DB_SECRET="arn:aws:secretsmanager:us-east-1:1:secret:x"),
        environment("Shard", TOKENIZER="bytes"),
        environment("Shard", REMOTE_FUNCTION_SECRET_KEY="ab12"),
    ),
    *seed("no-tags", drop("Train", "Tags"), put("Shard", "Tags", [])),
    *near("no-tags", ONE_TAG),
    *seed("uneven-tags", ONE_TAG),
    *near("uneven-tags", drop("Train", "Tags"), put("Train", "Tags.0.Value", "other")),
    *seed("tag-key-refused", tag("aws:project")),
    *near("tag-key-refused", tag("awsome")),
)
