"""Declares the evaluate step: the model and the baselines on the test split."""

from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep

from steps.context import StepContext
from steps.evaluate.config import EvaluateConfig
from steps.processing import input_folder, output_uri, processing_step

EVALUATION = PropertyFile(name="Evaluation", output_name="evaluation", path="evaluation.json")


def evaluate_step(
    context: StepContext,
    config: EvaluateConfig,
    *,
    image: str,
    shard: ProcessingStep,
    train: TrainingStep,
) -> ProcessingStep:
    """Output ``evaluation``: evaluation.json, also readable as the property file Evaluation."""
    return processing_step(
        context,
        "Evaluate",
        image=image,
        compute=config,
        arguments=["--baseline_units", str(config.baseline_units)],
        inputs=[
            input_folder("model", train.properties.ModelArtifacts.S3ModelArtifacts),
            input_folder("train", output_uri(shard, "train")),
            input_folder("test", output_uri(shard, "test")),
        ],
        outputs=["evaluation"],
        property_files=[EVALUATION],
        display_name="Evaluate on held-out data",
        description="Score the model and the baselines on the test split",
    )
