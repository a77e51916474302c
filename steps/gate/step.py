"""Declares the gate step: a small job that turns the evaluation into a verdict."""

from collections.abc import Mapping

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.steps import ProcessingStep

from steps.context import StepContext
from steps.gate.config import GateConfig
from steps.processing import input_folder, output_uri, processing_step

VERDICT = PropertyFile(name="Gate", output_name="gate", path="gate.json")
RECORD = PropertyFile(name="Record", output_name="gate", path="record.json")


def threshold_parameter(threshold: str) -> str:
    """The pipeline parameter of a threshold: ``max_bits_per_byte`` → ``GateMaxBitsPerByte``."""
    return "Gate" + "".join(word.capitalize() for word in threshold.split("_"))


def gate_step(
    context: StepContext,
    config: GateConfig,
    *,
    image: str,
    evaluate: ProcessingStep,
    provenance: str,
    primary_metric: str,
    directions: Mapping[str, str],
) -> ProcessingStep:
    """Output ``gate``: gate.json, also readable as the property file Gate; and beside it
    provenance.json and record.json, the property file Record (``conditions.provenance``).

    ``provenance``: S3 URI of what the definition knows of where the model comes from.
    ``directions``: metric → ``lower`` or ``higher``, which values are better. The gate asks no
    registry: the champion is an argument, its scores are an input, so a cached verdict is the right
    one as long as these are the same.
    """
    direction = directions[primary_metric]
    inputs = [input_folder("evaluation", output_uri(evaluate, "evaluation"))]
    if config.reads_scores:
        inputs.append(input_folder("scores", output_uri(evaluate, "scores")))
    inputs.append(input_folder("provenance", provenance))
    return processing_step(
        context,
        "Gate",
        image=image,
        compute=config,
        arguments=[
            *("--primary_metric", primary_metric, "--direction", direction),
            *_thresholds(context, config),
            *_baseline(config),
            *_absolute(config),
            *_comparisons(context, config, directions),
        ],
        inputs=inputs,
        outputs=["gate"],
        property_files=[VERDICT, RECORD],
        display_name="Gate",
        description="Compare the evaluation with the recipe's demands and with the champion",
    )


def _thresholds(context: StepContext, config: GateConfig) -> list[str | PipelineVariable]:
    """Thresholds are pipeline parameters: they may change from run to run."""
    arguments: list[str | PipelineVariable] = []
    for threshold in config.thresholds:
        value = context.parameters[threshold_parameter(threshold)].to_string()
        arguments += ["--threshold", threshold, value]
    return arguments


def _baseline(config: GateConfig) -> list[str]:
    if not config.below_baseline:
        return []
    margin = str(config.baseline_margin)
    return ["--below_baseline", config.below_baseline, "--baseline_margin", margin]


def _absolute(config: GateConfig) -> list[str]:
    return [word for name, value in config.absolute.items() for word in (f"--{name}", str(value))]


def _comparisons(
    context: StepContext, config: GateConfig, directions: Mapping[str, str]
) -> list[str | PipelineVariable]:
    """Each its own short argument: the service takes 100 of 256 characters each."""
    if not config.reads_scores:
        return []
    arguments: list[str | PipelineVariable] = []
    for kind, margins in config.comparisons.items():
        for metric, margin in margins.items():
            arguments += [f"--{kind}", metric, directions[metric], str(margin)]
    settings = ("confidence", "power", "min_groups", "min_slice_examples", "min_slice_groups",
                "cold_start")  # fmt: skip
    for name in (*settings, "max_group_influence"):
        if (value := getattr(config, name)) is not None:
            arguments += [f"--{name}", str(value)]
    return [*arguments, "--champion", context.parameters["ChampionArn"]]
