"""Declare the transform step: N instances, each of which scores its part of the files."""

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.steps import ProcessingStep

from steps.job_arguments import format_arguments
from steps.processing import StepContext, make_input, make_processing_step
from steps.register.config import SERVING
from steps.transform.config import TransformConfig
from steps.transform.settings import TransformSettings
from training.weights.starting_weights import BASE


def make_transform_step(
    context: StepContext,
    config: TransformConfig,
    *,
    image: str,
    model: PipelineVariable,
    register: ModelStep,
    base: str | None = None,
) -> ProcessingStep:
    """Return the transform step, which runs after the model is registered.

    Its outputs are ``scores``, JSON lines for each file of the parameter TransformInputUri, and
    ``quarantine``, the bad records and a summary of each instance.

    Args:
        model: S3 URI of the registered model.
        base: S3 URI of the model that the training started from.
    """
    return make_processing_step(
        context,
        "Transform",
        image=image,
        compute=config,
        arguments=format_arguments(config, TransformSettings),
        inputs=[
            make_input("model", model),
            make_input("records", context.parameters["TransformInputUri"], is_sharded=True),
            *([make_input(BASE, base)] if base else []),
        ],
        environment={"OMP_WAIT_POLICY": SERVING["OMP_WAIT_POLICY"]},
        outputs=["scores", "quarantine"],
        depends_on=[register],
        display_name="Score further records",
        description="Answer each record as an endpoint of the registered model would",
    )
