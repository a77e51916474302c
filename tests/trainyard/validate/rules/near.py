"""Changes next to the faults that are right, or not the rule's business: it must be silent."""

from tests.trainyard.validate.rules.data_faults import FOLDER, TUNE_DATA, input_at
from tests.trainyard.validate.rules.definitions import (
    CPU_IMAGE,
    GPU_IMAGE,
    KEY,
    RUNTIME,
    WAIT,
    add,
    depends_on,
    drop,
    file_system_channel,
    hyper,
    put,
    run_uri,
)
from tests.trainyard.validate.rules.fault import (
    ISOLATED,
    ONE_GPU,
    OUTPUT,
    OWN_IMAGE,
    SHARD,
    SPOT,
    TUNED,
    TWO_SUBNETS,
    channel,
    environment,
    fsx,
    image,
    machine,
    neuron,
    nodes,
    of,
    retry,
)

NEAR = (
    *of(
        "more-processes-than-gpus",
        eight=environment("Train", PET_NPROC_PER_NODE="8"),
        on_cpu=(machine("ml.m5.large"), environment("Train", PET_NPROC_PER_NODE="4")),
    ),
    *of(
        "idle-gpus",
        eight=environment("Train", PET_NPROC_PER_NODE="8"),
        no_number=environment("Train", PET_NPROC_PER_NODE="auto"),
    ),
    *of(
        "instances-share-no-work",
        one=put("Shard", f"{SHARD}.InstanceCount", 1),
        no_inputs=put("Shard", "ProcessingInputs", []),
    ),
    *of("gpu-image-on-cpu-machine", own_image=(machine("ml.m5.large"), image(OWN_IMAGE))),
    *of("cpu-image-on-accelerator", own_image=image(OWN_IMAGE), h100=machine("ml.p5.48xlarge")),
    *of(
        "image-of-another-accelerator",
        neuron=(machine("ml.trn1.32xlarge"), neuron()),
        cpu=(machine("ml.m5.large"), image(CPU_IMAGE)),
    ),
    *of("regions-differ", own_image=image(OWN_IMAGE), bucket=put("Shard", OUTPUT, run_uri("x"))),
    *of(
        "image-of-another-registry",
        mirror=image(GPU_IMAGE.replace("763104351884", "111122223333")),
        hong_kong=image(
            GPU_IMAGE.replace("us-east-1", "ap-east-1").replace("763104351884", "871362719292")
        ),
    ),
    *of(
        "efa-unknown-to-driver",
        told=(
            machine("ml.p5en.48xlarge"),
            environment("Train", FI_PROVIDER="efa", FI_EFA_USE_DEVICE_RDMA="1"),
        ),
        one_node=(machine("ml.p5en.48xlarge"), nodes(1)),
        known=machine("ml.p5e.48xlarge"),
        without_drivers=(machine("ml.p5en.48xlarge"), drop("Train", "InputDataConfig.3")),
        cpu=machine("ml.m6i.32xlarge"),
    ),
    *of(
        "efa-across-subnets",
        one_node=(TWO_SUBNETS, nodes(1)),
        without_efa=(TWO_SUBNETS, machine("ml.p3.16xlarge")),
    ),
    *of("nodes-without-efa", one_node=(*ONE_GPU, nodes(1)), cpu=machine("ml.m5.large")),
    *of(
        "encrypted-collectives",
        one_node=(nodes(1), put("Train", "EnableInterContainerTrafficEncryption", True)),
        cpu=(
            machine("ml.m5.large"),
            put("Train", "EnableInterContainerTrafficEncryption", True),
        ),
    ),
    *of(
        "tracking-from-isolation",
        local=(ISOLATED, hyper("Train", mlflow_tracking_uri="local")),
        not_isolated=hyper("Train", mlflow_tracking_uri="https://mlflow.corp"),
    ),
    *of("spot-without-checkpoints", with_them=SPOT, on_demand=drop("Train", "CheckpointConfig")),
    *of("spot-without-max-wait", with_it=SPOT),
    *of("max-wait-below-max-runtime", equal=(SPOT[0], put("Train", WAIT, 86_400))),
    *of("max-wait-without-spot", spot=SPOT),
    *of(
        "warm-pool-of-spot",
        on_demand=put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 600),
        none=(*SPOT, put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 0)),
    ),
    *of(
        "warm-pool-too-long",
        an_hour=put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 3600),
    ),
    *of(
        "capacity-not-awaited",
        cpu=(machine("ml.m5.large"), drop("Train", "/RetryPolicies")),
        spot=(*SPOT, drop("Train", "/RetryPolicies")),
        tuning=put("Tune", f"{TUNED}.ResourceConfig.InstanceType", "ml.g5.xlarge"),
    ),
    *of("training-too-long", four_weeks=put("Train", RUNTIME, 2_419_200)),
    *of("runtime-beyond-usual-quota", five_days=put("Train", RUNTIME, 432_000)),
    *of("instances-beyond-usual-quota", twenty=put("Shard", f"{SHARD}.InstanceCount", 20)),
    *of("no-time-limit", short=put("Shard", RUNTIME, 60)),
    *of(
        "fastfile-without-prefix",
        file=put("Train", "InputDataConfig.2.DataSource.S3DataSource.S3DataType", "ManifestFile"),
    ),
    *of(
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
    *of("compression-without-pipe", pipe=channel(CompressionType="Gzip", InputMode="Pipe")),
    *of(
        "gzip-input-without-pipe",
        pipe=(
            put("Shard", "ProcessingInputs.0.S3Input.S3CompressionType", "Gzip"),
            put("Shard", "ProcessingInputs.0.S3Input.S3InputMode", "Pipe"),
        ),
    ),
    *of("file-system-streamed", file=fsx()),
    *of("file-system-without-vpc", with_it=fsx(), none=drop("Train", "VpcConfig")),
    *of(
        "fsx-directory",
        mount_name=fsx(),
        efs=add("Train", "InputDataConfig", file_system_channel("EFS", "/data")),
        root_of_efs=add("Train", "InputDataConfig", file_system_channel("EFS", "/")),
    ),
    *of(
        "fsx-across-subnets",
        one=fsx(),
        efs=(add("Train", "InputDataConfig", file_system_channel("EFS", "/data")), TWO_SUBNETS),
    ),
    *of(
        "malformed-s3-location",
        bucket_alone=put("Train", "CheckpointConfig.S3Uri", "s3://bucket"),
        model_over_https=put(
            "Register",
            "InferenceSpecification.Containers.0.ModelDataUrl",
            "https://bucket.s3.amazonaws.com/model.tar.gz",
        ),
        parameter=put("Train", "CheckpointConfig.S3Uri", {"Get": "Parameters.InputUri"}),
        **{
            name: put(
                "Train",
                "OutputDataConfig.S3OutputPath",
                {"Std:Join": {"On": on, "Values": [*known, {"Get": "Parameters.InputUri"}, "a"]}},
            )
            for name, on, known in (
                ("top_model", "/", ["s3:/", "bucket"]),
                ("bucket_of_the_run", "/", ["s3:/"]),
                ("bucket_behind_the_scheme", "", ["s3://"]),
                ("end_of_a_bucket", "", ["s3://team-"]),
                ("end_of_the_scheme", ":", ["s3"]),
            )
        },
    ),
    *of("empty-key-part", last=put("Train", "CheckpointConfig.S3Uri", "s3://bucket/a/")),
    *of(
        "outputs-collide",
        of_two_branches=(
            put("Publish", OUTPUT, run_uri("published")),
            put("Archive", OUTPUT, run_uri("published")),
        ),
        of_training=put("Train", "OutputDataConfig.S3OutputPath", run_uri("Shard", "out")),
    ),
    *of(
        "prefix-of-another-location",
        of_a_folder=(
            put("Train", "CheckpointConfig.S3Uri", "s3://b/ASHA-1/"),
            put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://b/ASHA-10/raw"),
        ),
        of_what_is_in_it=(
            put("Train", "CheckpointConfig.S3Uri", "s3://b/ASHA-1"),
            put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://b/ASHA-1/raw"),
        ),
        of_itself=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", run_uri("train")),
        of_a_manifest=(
            put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://b/all"),
            put("Shard", "ProcessingInputs.0.S3Input.S3DataType", "ManifestFile"),
            put("Train", "CheckpointConfig.S3Uri", "s3://b/all-checkpoints"),
        ),
    ),
    *of(
        "reads-without-waiting",
        waits=(put("Publish", OUTPUT, "s3://bucket/in"), depends_on("Tune", "Publish")),
        waits_for_who_waits=(  # Train reads what Shard writes
            put("Evaluate", "ProcessingInputs.0.S3Input.S3Uri", run_uri("Shard", "out")),
            depends_on("Evaluate", "Train"),
        ),
        the_last_run=(  # Shard goes on from what Evaluate will write
            put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/state"),
            put("Evaluate", OUTPUT, "s3://bucket/state"),
        ),
        its_own=(
            put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/state"),
            put("Shard", OUTPUT, "s3://bucket/state"),
        ),
        other_branch=(
            put("Publish", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/x"),
            put("Archive", OUTPUT, "s3://bucket/x"),
        ),
        sibling=put("Tune", TUNE_DATA, run_uri("Shard", "out-2")),
        beneath_models=put("Tune", TUNE_DATA, run_uri("train", "data")),
    ),
    *of(
        "inputs-share-a-folder",
        nested_filter=add("Shard", "ProcessingInputs", input_at("/opt/ml/processing/input")),
        policy=add(
            "Shard", "ProcessingInputs", input_at("/opt/ml/processing/input/raw", AppManaged=True)
        ),
        an_output=put("Shard", FOLDER, "/opt/ml/processing/input/raw"),
    ),
    *of(
        "folder-outside-processing",
        slash=put("Shard", FOLDER, "/opt/ml/processing/out/"),
        itself=put("Shard", FOLDER, "/opt/ml/processing"),
        policy=add("Shard", "ProcessingInputs", input_at("/data", AppManaged=True)),
        of_run_time=put("Shard", FOLDER, {"Get": "Steps.Train.TrainingJobName"}),
    ),
    *of(
        "output-overwritten-by-next-run",
        parameter=put("Shard", OUTPUT, {"Get": "Parameters.InputUri"}),
        training=put("Train", "OutputDataConfig.S3OutputPath", "s3://bucket/models"),
    ),
    *of(
        "key-for-local-disks",
        cpu=put("Shard", f"{SHARD}.VolumeKmsKeyId", KEY),
        machine_of_run_time=(
            put("Train", "ResourceConfig.VolumeKmsKeyId", KEY),
            put("Train", "ResourceConfig.InstanceType", {"Get": "Steps.Shard.ProcessingJobName"}),
        ),
    ),
    *of("volume-beyond-local-disks", all=put("Evaluate", f"{SHARD}.VolumeSizeInGB", 450)),
    *of(
        "training-volume-beyond-local-disks",
        all=put("Train", "ResourceConfig.VolumeSizeInGB", 8000),
        ebs=(machine("ml.m5.large"), put("Train", "ResourceConfig.VolumeSizeInGB", 9000)),
    ),
    *of("volume-too-large", largest=put("Shard", f"{SHARD}.VolumeSizeInGB", 16_384)),
    *of("key-for-volume-only", both=put("Shard", f"{SHARD}.VolumeKmsKeyId", KEY)),
    *of(
        "never-hits-the-cache",
        off=(
            put("Train", "/CacheConfig.Enabled", False),
            put("Train", "CheckpointConfig.S3Uri", run_uri("checkpoints")),
        ),
        output=put("Shard", OUTPUT, run_uri("else")),
        name_of_the_pipeline=put("Shard", "Environment.P", {"Get": "Execution.PipelineName"}),
    ),
    *of(
        "timestamp-in-cache-key",
        date=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/web-2026-10-31"),
        hash=put("Shard", "ProcessingInputs.0.S3Input.S3Uri", "s3://bucket/20261121202823123456ab"),
        output=put("Train", "OutputDataConfig.S3OutputPath", "s3://b/2026-11-21-20-28-23-123"),
    ),
    *of(
        "checkpoints-of-one-run",
        pipeline=put(
            "Train",
            "CheckpointConfig.S3Uri",
            {"Std:Join": {"On": "/", "Values": ["s3://b", {"Get": "Execution.PipelineName"}]}},
        ),
    ),
    *of(
        "retry-without-effect",
        throttling=retry("Tune", ExceptionType=["Step.THROTTLING"], MaxAttempts=3),
    ),
    *of(
        "hasty-retries",
        throttling=retry("Train", ExceptionType=["Step.THROTTLING"], IntervalSeconds=1),
        half_a_minute=retry("Train", IntervalSeconds=30, MaxAttempts=3),
    ),
    *of(
        "channel-name-breaks-driver",
        underscore=channel(ChannelName="train_extra"),
        without_drivers=(drop("Train", "InputDataConfig.3"), channel(ChannelName="train-extra")),
    ),
    *of(
        "hyperparameter-name-breaks-driver",
        hyphen=hyper("Train", **{"model-dim": "64"}),
        without_drivers=(drop("Train", "InputDataConfig.3"), hyper("Train", **{"a.b": "64"})),
    ),
    *of(
        "hyperparameter-value-breaks-driver",
        double=hyper("Train", note='"quoted"'),
        without_drivers=(drop("Train", "InputDataConfig.3"), hyper("Train", note="it's")),
    ),
    *of(
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
    *of(
        "secret-in-plain-text",
        arn=environment("Shard", DB_SECRET="arn:aws:secretsmanager:us-east-1:1:secret:x"),
        tokenizer=environment("Shard", TOKENIZER="bytes"),
        of_the_sdk=environment("Shard", REMOTE_FUNCTION_SECRET_KEY="ab12"),
    ),
    *of("no-tags", one=put("Train", "Tags", [{"Key": "project", "Value": "a"}])),
    *of("uneven-tags", none=drop("Train", "Tags"), values=put("Train", "Tags.0.Value", "other")),
    *of("tag-key-refused", near=add("Train", "Tags", {"Key": "awsome", "Value": "a"})),
)
