"""Declare the evaluate step: the model, the champion and the baselines on the test split."""

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.functions import Join
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep

from steps.context import StepContext
from steps.evaluate.config import EvaluateConfig
from steps.evaluate.settings import EvaluateSettings
from steps.job_arguments import words
from steps.processing import Splits, input_folder, output_uri, processing_step
from training.finetuning.model_files import ARCHIVE
from training.starting_weights import BASE

EVALUATION = PropertyFile(name="Evaluation", output_name="evaluation", path="evaluation.json")


def model_uris(
    train: TrainingStep, evaluate: ProcessingStep, compression: str
) -> tuple[PipelineVariable, PipelineVariable]:
    """Return the S3 URIs of the model, and of its int8 version if there is one."""
    full, int8 = train.properties.ModelArtifacts.S3ModelArtifacts, output_uri(evaluate, "int8")
    return full, Join(on="/", values=[int8, ARCHIVE]) if compression == "gzip" else int8


def evaluate_step(
    context: StepContext,
    config: EvaluateConfig,
    *,
    image: str,
    splits: Splits,
    train: TrainingStep,
    int8: bool = False,
    base: str | None = None,
) -> ProcessingStep:
    """Declare the step with output ``evaluation``: evaluation.json, also the property file
    Evaluation.

    Output ``scores``: challenger.parquet, and champion.parquet where there is a champion. The
    pipeline parameters ChampionArn and ChampionModelUri name the champion:
    ``pipelines.registry.champion``.
    Of ``splits`` the summary of the train split is read instead of it, where there is one.
    ``int8``: whether it judges the model's int8 version, which becomes the output ``int8``.
    ``base``: S3 URI of the model that the training began with, which is scored as baseline
    ``base_model``. Your own script is evaluated by ``steps.evaluate_script.step``.
    """
    train_split = "summary" if "summary" in splits else "train"
    return processing_step(
        context,
        "Evaluate",
        image=image,
        compute=config,
        arguments=[
            *words(config, EvaluateSettings),
            *("--champion", context.parameters["ChampionArn"]),
            *(["--int8"] if int8 else []),
            *([f"--{BASE}", base] if base else []),
        ],
        inputs=[
            input_folder("model", train.properties.ModelArtifacts.S3ModelArtifacts),
            input_folder(train_split, splits[train_split]),
            input_folder("test", splits["test"]),
            input_folder("champion", context.parameters["ChampionModelUri"]),
            *([input_folder(BASE, base)] if base else []),
        ],
        outputs=["evaluation", "scores", *(["int8"] if int8 else [])],
        property_files=[EVALUATION],
        display_name="Evaluate on held-out data",
        description="Score the model, the champion and the baselines on the test split",
    )
