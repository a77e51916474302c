"""Mistakes in our jobs of the valid definition: ``FAULTS`` must be found, ``NEAR`` left alone."""

import json

from tests.trainyard.validate.rules.definitions import (
    GPU_IMAGE,
    REGISTRY,
    RUNTIME,
    SMP_IMAGE,
    WAIT,
    Change,
    drop,
    hyper,
    put,
)
from tests.trainyard.validate.rules.fault import (
    ISOLATED,
    OWN_IMAGE,
    SPOT,
    environment,
    image,
    machine,
    nodes,
    of,
)


def model(layers: int, dim: int, **loop: str) -> Change:
    """The language model's shape, and what else of the training."""
    config = {"layers": layers, "dim": dim, "heads": dim // 128, "context_length": 2048}
    return hyper("Train", workload_config=json.dumps(config), global_batch="256", **loop)


OF_SCIKIT_LEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn"


def shard_image(name: str) -> Change:
    """An image of AWS's account for SKLearn and XGBoost, for the step Shard."""
    account = OF_SCIKIT_LEARN.rpartition("/")[0]
    return put("Shard", "AppSpecification.ImageUri", f"{account}/{name}")


FAULTS = (
    *of(
        "training-runs-out-of-memory",
        seventy_billion=model(80, 8192, micro_batch="1"),
        large_micro_batch=model(32, 4096, micro_batch="8"),
        smaller_machine=(machine("ml.g5.48xlarge"), model(32, 4096, micro_batch="2")),
    ),
    *of("training-may-run-out-of-memory", close=model(38, 4096, micro_batch="2")),
    *of(
        "training-settings",
        strategy=hyper("Train", strategy="fdsp"),
        learning_rate=hyper("Train", learning_rate="-1"),
        micro_batch=hyper("Train", micro_batch="0"),
        degree_of_ddp=hyper("Train", strategy="ddp"),
        batches=hyper("Train", global_batch="127", micro_batch="4"),
        schedule=hyper("Train", schedule="linear"),
    ),
    *of(
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
    *of(
        "strategy-without-library",
        smddp=hyper("Train", strategy="smddp", shard_degree="0"),
        smp=hyper("Train", strategy="smp"),
    ),
    *of(
        "smp-image-without-smp",
        fsdp=image(SMP_IMAGE),
        ddp=(image(SMP_IMAGE), hyper("Train", strategy="ddp", shard_degree="0")),
    ),
    *of(
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
    *of(
        "tensor-parallel-across-nodes",
        sixteen=hyper("Train", tensor_parallel="16", shard_degree="0", global_batch="16"),
    ),
    *of(
        "bfloat16-before-ampere",
        t4=(machine("ml.g4dn.12xlarge"), hyper("Train", precision="bfloat16")),
        v100=(machine("ml.p3.16xlarge"), hyper("Train", precision="bfloat16")),
    ),
    *of("float8-without-products", a100=hyper("Train", float8="tensorwise")),
    *of(
        "image-with-older-torch",
        float8=(
            image(GPU_IMAGE),
            machine("ml.p5.48xlarge"),
            hyper("Train", float8="rowwise"),
        ),
    ),
    *of(
        "uniform-shuffle-over-fastfile",
        of_the_channel=hyper("Train", shuffle="uniform"),
        by_default=put("Train", "HyperParameters.shuffle", "uniform"),
        of_the_job=(
            drop("Train", "InputDataConfig.0.InputMode"),
            put("Train", "AlgorithmSpecification.TrainingInputMode", "FastFile"),
            hyper("Train", shuffle="uniform"),
        ),
    ),
    *of(
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
    *of(
        "packages-from-isolation",
        train=ISOLATED,
        shard=put("Shard", "NetworkConfig.EnableNetworkIsolation", True),
    ),
    *of(
        "image-cannot-run-job",
        old_python=image(f"{REGISTRY}/pytorch-training:2.2.0-gpu-py310"),
        old_python_of_a_table=(
            shard_image("sagemaker-xgboost:3.0-5"),
            put("Shard", "AppSpecification.ContainerEntrypoint.2", "shard"),
        ),
        no_torch=image(f"{OF_SCIKIT_LEARN}:1.4-2-py312-cpu-py3"),
    ),
    *of(
        "checkpoints-elsewhere",
        tmp=put("Train", "CheckpointConfig.LocalPath", "/tmp/checkpoints"),
        model=put("Train", "CheckpointConfig.LocalPath", "/opt/ml/model"),
    ),
    *of(
        "rare-checkpoints",
        a_fifth_of_the_run=(*SPOT, hyper("Train", checkpoint_interval="20000")),
        never=(*SPOT, hyper("Train", checkpoint_interval="100000")),
        of_a_short_run=(
            *SPOT,
            put("Train", RUNTIME, 3600),
            hyper("Train", checkpoint_interval="20000"),
        ),
        hours=(
            *SPOT,
            put("Train", RUNTIME, 864_000),
            put("Train", WAIT, 864_000),
            hyper("Train", checkpoint_interval="5000"),
        ),
    ),
    *of(
        "volume-smaller-than-checkpoints",
        large_model=hyper("Train", workload_config='{"layers":96,"dim":24576}'),
        small_volume=(
            machine("ml.m5.24xlarge"),
            hyper("Train", shard_degree="0", keep_checkpoints="30"),
            put("Train", "ResourceConfig.VolumeSizeInGB", 30),
        ),
    ),
    *of(
        "shards-larger-than-memory",
        shard_mb=put("Shard", "AppSpecification.ContainerArguments", ["--shard_mb", "4096"]),
        processes=put(
            "Shard",
            "AppSpecification.ContainerArguments",
            ["--shard_mb", "512", "--processes", "64"],
        ),
    ),
)

NEAR = (
    *of(
        "training-runs-out-of-memory",
        recomputed=model(32, 4096, micro_batch="8", activation_checkpointing="full"),
        close=model(38, 4096, micro_batch="2"),
        more_memory=(machine("ml.p4de.24xlarge"), model(32, 4096, micro_batch="4")),
        no_gpu=(machine("ml.m5.24xlarge"), model(80, 8192, micro_batch="1")),
    ),
    *of(
        "training-may-run-out-of-memory",
        surely=model(80, 8192, micro_batch="1"),
        surely_not=model(24, 2048, micro_batch="2"),
    ),
    *of(
        "training-settings",
        more_of_them=hyper("Train", schedule="wsd", optimizer="lamb", compile="True"),
        of_others=(hyper("Train", strategy="fdsp"), drop("Train", "HyperParameters.workload")),
        known_at_run_time=put(
            "Train", "HyperParameters.strategy", {"Get": "Steps.Shard.ProcessingJobName"}
        ),
    ),
    *of(
        "strategy-on-wrong-machine", smp=(machine("ml.p5.48xlarge"), hyper("Train", strategy="smp"))
    ),
    *of(
        "strategy-without-library",
        smddp_in_smps_image=(
            image(SMP_IMAGE),
            hyper("Train", strategy="smddp", shard_degree="0"),
        ),
        own_image=(image(OWN_IMAGE), hyper("Train", strategy="smddp", shard_degree="0")),
    ),
    *of("smp-image-without-smp", smp=(image(SMP_IMAGE), hyper("Train", strategy="smp"))),
    *of(
        "world-does-not-fit",
        four_nodes=nodes(4),
        split=hyper("Train", tensor_parallel="2", pipeline_parallel="2", shard_degree="0"),
        by_the_environment=(
            environment("Train", PET_NPROC_PER_NODE="4"),
            hyper("Train", global_batch="32"),
        ),
    ),
    *of(
        "tensor-parallel-across-nodes",
        eight=hyper("Train", tensor_parallel="8"),
        one_node=(nodes(1), hyper("Train", tensor_parallel="16")),
    ),
    *of(
        "bfloat16-before-ampere",
        a100=hyper("Train", precision="bfloat16"),
        suiting_the_machine=machine("ml.p3.16xlarge"),
        in_float16=(machine("ml.g4dn.12xlarge"), hyper("Train", precision="float16")),
    ),
    *of(
        "float8-without-products",
        h100=(machine("ml.p5.48xlarge"), hyper("Train", float8="rowwise")),
        without=hyper("Train", float8="none"),
    ),
    *of(
        "image-with-older-torch",
        own_image=(image(OWN_IMAGE), hyper("Train", float8="tensorwise")),
        newer=(
            image(GPU_IMAGE.replace("2.8.0", "2.10.0")),
            hyper("Train", float8="tensorwise"),
        ),
    ),
    *of(
        "uniform-shuffle-over-fastfile",
        file=(
            put("Train", "InputDataConfig.0.InputMode", "File"),
            hyper("Train", shuffle="uniform"),
        ),
    ),
    *of(
        "sharded-channel-of-ours",
        one_node=(
            nodes(1),
            put(
                "Train",
                "InputDataConfig.0.DataSource.S3DataSource.S3DataDistributionType",
                "ShardedByS3Key",
            ),
        ),
        code=put(
            "Train",
            "InputDataConfig.2.DataSource.S3DataSource.S3DataDistributionType",
            "ShardedByS3Key",
        ),
    ),
    *of(
        "packages-from-isolation",
        own_image=(ISOLATED, image(OWN_IMAGE)),
        own_entry_point=(
            put("Shard", "NetworkConfig.EnableNetworkIsolation", True),
            put("Shard", "AppSpecification.ContainerEntrypoint", ["python3", "job.py"]),
        ),
    ),
    *of(
        "image-cannot-run-job",
        own_image=image(OWN_IMAGE),
        digest=image(f"{REGISTRY}/pytorch-training@sha256:{'a' * 64}"),
        no_torch_needed=shard_image("sagemaker-scikit-learn:1.9-0-cpu-py3"),
        script_of_another=(
            shard_image("sagemaker-scikit-learn:1.2-1-cpu-py3"),
            put("Shard", "AppSpecification.ContainerEntrypoint", ["python3", "job.py"]),
        ),
    ),
    *of(
        "checkpoints-elsewhere",
        slash=put("Train", "CheckpointConfig.LocalPath", "/opt/ml/checkpoints/"),
        default=drop("Train", "CheckpointConfig.LocalPath"),
    ),
    *of(
        "rare-checkpoints",
        on_demand=hyper("Train", checkpoint_interval="20000"),
        often=(*SPOT, hyper("Train", checkpoint_interval="500")),
        a_tenth=(*SPOT, put("Train", RUNTIME, 36_000), hyper("Train", checkpoint_interval="5000")),
    ),
    *of(
        "volume-smaller-than-checkpoints",
        tabular=hyper("Train", workload_config='{"label":"delay"}'),
        no_json=hyper("Train", workload_config="small"),
    ),
    *of(
        "shards-larger-than-memory",
        few_processes=put(
            "Shard",
            "AppSpecification.ContainerArguments",
            ["--shard_mb", "1024", "--processes", "4"],
        ),
    ),
)
