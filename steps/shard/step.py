"""Declares the shard step: N instances, each of which reads all raw objects and packs its part."""

from collections.abc import Sequence

from sagemaker.mlops.workflow.steps import ProcessingStep

from steps.context import StepContext
from steps.processing import input_folder, processing_step
from steps.shard.config import ShardConfig

OUTPUTS = ("train", "validation", "test", "quarantine")


def shard_step(
    context: StepContext,
    config: ShardConfig,
    *,
    image: str,
    workload_arguments: Sequence[str],
    tokenizer_uri: str | None,
) -> ProcessingStep:
    """Outputs ``train``, ``validation``, ``test``: one S3 prefix a split, filled by all instances.

    ``quarantine`` takes the records that could not be read, and a summary for each instance.
    """
    inputs = [input_folder("raw", context.parameters["InputUri"])]
    arguments = [*workload_arguments, *_arguments(config)]
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
        outputs=OUTPUTS,
        display_name="Shard the data",
        description="Split raw records by a hash, pack them into shards, quarantine the bad ones",
    )


def _arguments(config: ShardConfig) -> list[str]:
    """The settings as the job reads them."""
    arguments = []
    for name in ("validation_share", "test_share", "shard_mb", "max_bad_share"):
        arguments += [f"--{name}", str(getattr(config, name))]
    for name in ("key", "processes"):
        if getattr(config, name) is not None:
            arguments += [f"--{name}", str(getattr(config, name))]
    if config.unique is not None:
        arguments += ["--unique", *config.unique]
    if config.by_folder:
        arguments.append("--by_folder")
    return arguments
