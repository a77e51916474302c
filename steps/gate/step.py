"""Declare the gate step: a small job that turns the evaluation into a verdict."""

from collections.abc import Mapping, Sequence

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.steps import ProcessingStep

from conditions.gate_arguments import arguments
from steps.gate.config import GateConfig, threshold_parameter
from steps.processing import StepContext, input_folder, output_uri, processing_step

VERDICT = PropertyFile(name="Gate", output_name="gate", path="gate.json")
RECORD = PropertyFile(name="Record", output_name="gate", path="record.json")


def gate_step(
    context: StepContext,
    config: GateConfig,
    *,
    image: str,
    evaluate: ProcessingStep,
    provenance: str,
    primary_metric: str,
    directions: Mapping[str, str],
    models: Sequence[PipelineVariable],
) -> ProcessingStep:
    """Declare the step with output ``gate``: gate.json, also readable as the property file Gate;
    and beside it provenance.json and record.json, the property file Record
    (``conditions.provenance_record``).

    ``provenance``: S3 URI of the record that the definition was compiled with.
    ``directions``: metric → ``lower`` or ``higher``, which values are better. ``models``: S3 URIs
    of the model and of its int8 version. The gate does not ask the registry: the champion is an
    argument, its scores are an input, so a cached verdict is right as long as these are the same.
    """
    inputs = [input_folder("evaluation", output_uri(evaluate, "evaluation"))]
    if config.reads_scores:
        inputs.append(input_folder("scores", output_uri(evaluate, "scores")))
    inputs.append(input_folder("provenance", provenance))
    return processing_step(
        context,
        "Gate",
        image=image,
        compute=config,
        arguments=arguments(
            config.values
            | {"threshold": {n: context.text(threshold_parameter(n)) for n in config.thresholds}},
            primary_metric=primary_metric,
            directions=directions,
            champion=context.parameters["ChampionArn"],
            look_number=context.text("Look") if config.comparisons else None,
            models=models if config.judges_int8 else (),
        ),
        inputs=inputs,
        outputs=["gate"],
        property_files=[VERDICT, RECORD],
        display_name="Gate",
        description="Compare the evaluation with the recipe's demands and with the champion",
    )


def registered_model(
    context: StepContext, config: GateConfig, gate: ProcessingStep, full: PipelineVariable
) -> PipelineVariable:
    """Return the S3 URI of the version that the gate's verdict is about; ``full``: the model's.

    Its bucket and the folder of all runs are constant, so a policy can name them.
    """
    if not config.judges_int8:
        return full
    model_key = JsonGet(step_name=gate.name, property_file=VERDICT.name, json_path="int8.model")
    return Join(on="", values=[f"{context.root_uri}/runs/", model_key])
