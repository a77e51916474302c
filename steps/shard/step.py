"""Declares the shard step: N instances, each over its own part of the raw objects."""

from collections.abc import Sequence

from sagemaker.mlops.workflow.steps import ProcessingStep

from steps.context import StepContext
from steps.processing import input_folder, processing_step
from steps.shard.config import ShardConfig

SPLITS = ("train", "validation", "test")


def shard_step(
    context: StepContext,
    config: ShardConfig,
    *,
    image: str,
    workload_arguments: Sequence[str],
    tokenizer_uri: str | None,
) -> ProcessingStep:
    """Outputs ``train``, ``validation`` and ``test``: one S3 prefix a split, filled by all."""
    inputs = [input_folder("raw", context.parameters["InputUri"], sharded=True)]
    arguments = [
        *workload_arguments,
        "--validation_share",
        str(config.validation_share),
        "--test_share",
        str(config.test_share),
        "--samples_per_shard",
        str(config.samples_per_shard),
    ]
    if tokenizer_uri:
        inputs.append(input_folder("tokenizer", tokenizer_uri))
        arguments += ["--tokenizer", "/opt/ml/processing/input/tokenizer/tokenizer.json"]
    return processing_step(
        context,
        "Shard",
        image=image,
        compute=config,
        instance_count=context.parameters["ShardInstanceCount"],
        arguments=arguments,
        inputs=inputs,
        outputs=SPLITS,
        display_name="Shard the data",
        description="Split raw records by key, tokenise and pack them into shards",
    )
