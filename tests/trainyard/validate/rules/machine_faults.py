"""Mistakes in the valid definition: machines, images, strategies, network, spot, quotas."""

from tests.trainyard.validate.rules.definitions import (
    CPU_IMAGE,
    GPU_IMAGE,
    REGISTRY,
    RUNTIME,
    WAIT,
    drop,
    hyper,
    put,
)
from tests.trainyard.validate.rules.fault import (
    ISOLATED,
    ONE_GPU,
    SHARD,
    SPOT,
    TUNED,
    TWO_SUBNETS,
    environment,
    image,
    machine,
    neuron,
    nodes,
    of,
    retry,
)

OF_MACHINES = (
    *of(
        "more-processes-than-gpus",
        sixteen_on_eight=environment("Train", PET_NPROC_PER_NODE="16"),
        two_on_one=(*ONE_GPU, environment("Train", PET_NPROC_PER_NODE="2")),
    ),
    *of(
        "idle-gpus",
        one_of_eight=(
            environment("Train", PET_NPROC_PER_NODE="1"),
            hyper("Train", shard_degree="2"),
        ),
        four_of_eight=environment("Train", PET_NPROC_PER_NODE="4"),
    ),
    *of(
        "instances-share-no-work",
        replicated=put(
            "Shard", "ProcessingInputs.0.S3Input.S3DataDistributionType", "FullyReplicated"
        ),
        more_instances=put("Evaluate", f"{SHARD}.InstanceCount", 4),
    ),
    *of(
        "gpu-image-on-cpu-machine",
        train=machine("ml.c5.18xlarge"),
        shard=put("Shard", "AppSpecification.ImageUri", GPU_IMAGE),
        by_cuda_tag=(
            machine("ml.m5.large"),
            image(f"{REGISTRY}/pytorch-training:2.5.1-cu124-py311"),
        ),
    ),
    *of(
        "cpu-image-on-accelerator",
        train=image(CPU_IMAGE),
        evaluate=put("Evaluate", "AppSpecification.ImageUri", CPU_IMAGE),
    ),
    *of(
        "image-of-another-accelerator",
        cuda_on_trainium=machine("ml.trn1.32xlarge"),
        neuron_on_gpus=neuron(),
    ),
    *of(
        "regions-differ",
        image=image(GPU_IMAGE.replace("us-east-1", "eu-west-1")),
        key=put(
            "Train", "OutputDataConfig.KmsKeyId", "arn:aws:kms:us-west-2:111122223333:key/1234abcd"
        ),
        inside_a_branch=put(
            "Publish", "AppSpecification.ImageUri", CPU_IMAGE.replace("us-east-1", "us-west-2")
        ),
    ),
    *of(
        "image-of-another-registry",
        common_account_in_hong_kong=image(GPU_IMAGE.replace("us-east-1", "ap-east-1")),
        hong_kongs_account_here=image(GPU_IMAGE.replace("763104351884", "871362719292")),
    ),
    *of(
        "efa-unknown-to-driver",
        p5en=machine("ml.p5en.48xlarge"),
        b200=machine("ml.p6-b200.48xlarge"),
        g6e=(machine("ml.g6e.48xlarge")),
    ),
    *of("efa-across-subnets", two=TWO_SUBNETS, on_h100=(TWO_SUBNETS, machine("ml.p5.48xlarge"))),
    *of(
        "nodes-without-efa",
        g5=ONE_GPU,
        p3=machine("ml.p3.16xlarge"),
    ),
    *of(
        "encrypted-collectives",
        train=put("Train", "EnableInterContainerTrafficEncryption", True),
        without_efa=(*ONE_GPU, put("Train", "EnableInterContainerTrafficEncryption", True)),
    ),
    *of(
        "tracking-from-isolation",
        environment=(ISOLATED, environment("Train", MLFLOW_TRACKING_URI="https://mlflow.corp")),
        hyperparameter=(ISOLATED, hyper("Train", mlflow_tracking_uri="https://mlflow.corp")),
        policy=(
            ISOLATED,
            hyper("Train", mlflow_tracking_uri="arn:aws:sagemaker:us-east-1:1:mlflow-app/x"),
        ),
        processing=(
            put("Evaluate", "NetworkConfig.EnableNetworkIsolation", True),
            environment("Evaluate", MLFLOW_TRACKING_URI="https://mlflow.corp"),
        ),
    ),
    *of(
        "spot-without-checkpoints",
        none=(*SPOT, drop("Train", "CheckpointConfig")),
        no_uri=(*SPOT, drop("Train", "CheckpointConfig.S3Uri")),
    ),
    *of(
        "spot-without-max-wait",
        none=put("Train", "EnableManagedSpotTraining", True),
        tuning=put("Tune", f"{TUNED}.EnableManagedSpotTraining", True),
    ),
    *of(
        "max-wait-below-max-runtime",
        less=(SPOT[0], put("Train", WAIT, 3600)),
        by_a_second=(SPOT[0], put("Train", WAIT, 86_399)),
    ),
    *of(
        "max-wait-without-spot",
        off=put("Train", WAIT, 172_800),
        not_said=(drop("Train", "EnableManagedSpotTraining"), put("Train", WAIT, 172_800)),
    ),
    *of(
        "warm-pool-of-spot",
        train=(*SPOT, put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 600)),
    ),
    *of(
        "warm-pool-too-long",
        two_hours=put("Train", "ResourceConfig.KeepAlivePeriodInSeconds", 7200),
    ),
    *of(
        "capacity-not-awaited",
        no_policy=drop("Train", "/RetryPolicies"),
        other_causes=retry("Train", ExceptionType=["Step.THROTTLING"]),
    ),
    *of("training-too-long", a_year=put("Train", RUNTIME, 31_536_000)),
    *of(
        "runtime-beyond-usual-quota",
        train=put("Train", RUNTIME, 864_000),
        four_weeks=put("Train", RUNTIME, 2_419_200),
        shard=put("Shard", RUNTIME, 432_001),
    ),
    *of(
        "instances-beyond-usual-quota",
        train=nodes(32),
        shard=put("Shard", f"{SHARD}.InstanceCount", 21),
    ),
    *of("no-time-limit", shard=drop("Shard", "StoppingCondition")),
)
