"""Declares the gate step: a small job that turns the evaluation into a verdict."""

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
    direction: str,
) -> ProcessingStep:
    """Output ``gate``: gate.json, also readable as the property file Gate; and beside it
    provenance.json and record.json, the property file Record (``conditions.provenance``).

    ``provenance``: S3 URI of what the definition knows of where the model comes from.
    ``direction`` is ``lower`` or ``higher``: which values of ``primary_metric`` are better.
    """
    arguments = ["--primary_metric", primary_metric, "--direction", direction]
    for threshold in config.thresholds:
        value = context.parameters[threshold_parameter(threshold)].to_string()
        arguments += ["--threshold", threshold, value]
    if config.below_baseline:
        arguments += ["--below_baseline", config.below_baseline]
        arguments += ["--baseline_margin", str(config.baseline_margin)]
    return processing_step(
        context,
        "Gate",
        image=image,
        compute=config,
        arguments=arguments,
        inputs=[
            input_folder("evaluation", output_uri(evaluate, "evaluation")),
            input_folder("provenance", provenance),
        ],
        outputs=["gate"],
        property_files=[VERDICT, RECORD],
        display_name="Gate",
        description="Compare the evaluation with the recipe's thresholds and the baseline",
    )
