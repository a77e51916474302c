"""Declare the shard step: N instances, each of which reads its part of the raw objects."""

from collections.abc import Mapping, Sequence

from sagemaker.mlops.workflow.steps import ProcessingStep

from steps.job_arguments import format_arguments
from steps.processing import StepContext, make_input, make_processing_step
from steps.shard.config import ShardConfig
from steps.shard.settings import ShardSettings

OUTPUTS = ("train", "validation", "test", "quarantine")


def make_shard_step(
    context: StepContext,
    config: ShardConfig,
    *,
    image: str,
    workload_arguments: Sequence[str],
    tokenizer_uri: str | None,
    input_uris: Mapping[str, str] | None = None,
    has_summary: bool = False,
) -> ProcessingStep:
    """Return the shard step with the outputs ``train``, ``validation`` and ``test``.

    Each output is one S3 prefix per split, which all instances write to. A further output,
    ``quarantine``, has the records that could not be read, and a summary of each instance.

    Args:
        input_uris: mapping of names to S3 prefixes if there are several inputs. Otherwise the one
            input is the pipeline's parameter InputUri.
        has_summary: whether there is also an output ``summary`` of the train split, for the
            evaluation.
    """
    if input_uris:
        inputs = [
            make_input(f"raw-{name}", uri, f"raw/{name}", is_sharded=True)
            for name, uri in input_uris.items()
        ]
    else:
        inputs = [make_input("raw", context.parameters["InputUri"], is_sharded=True)]
    arguments = [*workload_arguments, *format_arguments(config, ShardSettings)]
    arguments += ["--inputs", *input_uris] if input_uris else []
    arguments += ["--summary"] if has_summary else []
    if tokenizer_uri:
        inputs.append(make_input("tokenizer", tokenizer_uri))
        arguments += ["--tokenizer", "/opt/ml/processing/input/tokenizer/tokenizer.json"]
    return make_processing_step(
        context,
        "Shard",
        image=image,
        compute=config,
        instance_count=context.parameters.get("ShardInstanceCount", config.instance_count),
        arguments=arguments,
        inputs=inputs,
        outputs=(*OUTPUTS, "summary") if has_summary else OUTPUTS,
        display_name="Shard the data",
        description="Split raw records by a hash, pack them into shards, quarantine the bad ones",
    )
