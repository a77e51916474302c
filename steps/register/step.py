"""Declares the register step: a model package with its metrics and where it came from."""

from collections.abc import Mapping

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.model_metrics import MetricsSource, ModelMetrics
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep
from sagemaker.serve.model_builder import ModelBuilder

from steps.context import StepContext
from steps.processing import output_uri
from steps.register.config import RegisterConfig


def register_step(
    context: StepContext,
    config: RegisterConfig,
    *,
    image: str,
    train: TrainingStep,
    evaluate: ProcessingStep,
    metrics: tuple[str, ...],
    provenance: Mapping[str, str],
) -> ModelStep:
    """One model package: the artifact, evaluation.json as ModelMetrics, and customer metadata.

    The metadata hold ``provenance`` (commit and the like, known when the definition is built) and
    the test ``metrics`` with the dataset's fingerprint (read from the evaluation when it runs).
    """
    evaluation_uri = Join(on="/", values=[output_uri(evaluate, "evaluation"), "evaluation.json"])
    measured = {metric: _evaluated(evaluate, f"metrics.{metric}.value") for metric in metrics}
    builder = ModelBuilder(
        s3_model_data_url=train.properties.ModelArtifacts.S3ModelArtifacts,
        image_uri=image,
        role_arn=context.role,
        sagemaker_session=context.session,
    )
    step_args = builder.register(
        model_package_group_name=config.model_package_group,
        content_types=list(config.content_types),
        response_types=list(config.response_types),
        inference_instances=list(config.inference_instances),
        transform_instances=list(config.inference_instances),
        approval_status=context.parameters["ApprovalStatus"],
        model_metrics=ModelMetrics(
            model_statistics=MetricsSource("application/json", evaluation_uri)
        ),
        customer_metadata_properties={
            **provenance,
            "dataset_fingerprint": _evaluated(evaluate, "dataset.fingerprint"),
            **measured,
        },
    )
    return ModelStep(
        name="Register",
        display_name="Register the model package",
        description="Record the model, its metrics and its provenance in the model registry",
        step_args=step_args,
    )


def _evaluated(evaluate: ProcessingStep, path: str) -> PipelineVariable:
    value = JsonGet(step_name=evaluate.name, property_file="Evaluation", json_path=path)
    return Join(on="", values=[value])  # customer metadata are strings; a bare number is refused
