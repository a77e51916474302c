"""Declare the gate step: a small job that turns the evaluation into a verdict."""

from collections.abc import Mapping

from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.steps import ProcessingStep

from conditions.gate_arguments import build_arguments
from steps.gate.config import GateConfig, name_threshold_parameter
from steps.processing import StepContext, build_output_uri, make_input, make_processing_step

VERDICT = PropertyFile(name="Gate", output_name="gate", path="gate.json")
RECORD = PropertyFile(name="Record", output_name="gate", path="record.json")


def make_gate_step(
    context: StepContext,
    config: GateConfig,
    *,
    image: str,
    evaluate: ProcessingStep,
    provenance: str,
    primary_metric: str,
    directions: Mapping[str, str],
) -> ProcessingStep:
    """Declare the step with the output ``gate``.

    The output contains gate.json, which is also the property file Gate; provenance.json; and
    record.json, which is also the property file Record (``conditions.gate_documents``). The gate
    does not call the registry: the champion is an argument, and its scores are an input. So a
    cached verdict is right as long as these are the same.

    Args:
        provenance: S3 URI of the record with which the definition was compiled.
        directions: {metric: ``lower`` or ``higher``}, whichever values are better.
    """
    inputs = [make_input("evaluation", build_output_uri(evaluate, "evaluation"))]
    if config.reads_scores:
        inputs.append(make_input("scores", build_output_uri(evaluate, "scores")))
    inputs.append(make_input("provenance", provenance))
    return make_processing_step(
        context,
        "Gate",
        image=image,
        compute=config,
        arguments=build_arguments(
            config.values
            | {
                "threshold": {
                    n: context.get_parameter_string(name_threshold_parameter(n))
                    for n in config.thresholds
                }
            },
            primary_metric=primary_metric,
            directions=directions,
            champion=context.parameters["ChampionArn"],
            look_number=context.get_parameter_string("Look") if config.comparisons else None,
        ),
        inputs=inputs,
        outputs=["gate"],
        property_files=[VERDICT, RECORD],
        display_name="Gate",
        description="Compare the evaluation with the recipe's demands and with the champion",
    )
