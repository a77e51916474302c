"""Declare the evaluate step, which scores the model, the champion and the baselines on the test
split, by the workload or by the user's script.
"""

import json
from collections.abc import Sequence

from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep

from steps.evaluate.config import EvaluateConfig, Leaks
from steps.evaluate.settings import EvaluateSettings
from steps.job_arguments import format_arguments
from steps.processing import Splits, StepContext, make_input, make_processing_step, split_argument
from training.weights.starting_weights import BASE

SPLITS = ("train", "test")
EVALUATION = PropertyFile(name="Evaluation", output_name="evaluation", path="evaluation.json")


def make_evaluate_step(
    context: StepContext,
    config: EvaluateConfig,
    *,
    image: str,
    splits: Splits,
    train: TrainingStep,
    base: str | None = None,
) -> ProcessingStep:
    """Declare the step with the outputs ``evaluation`` and ``scores``, for a workload.

    Output ``evaluation`` is evaluation.json, which is also the property file Evaluation. Output
    ``scores`` is challenger.parquet, and champion.parquet if there is a champion. The pipeline
    parameters ChampionArn and ChampionModelUri name the champion (``pipelines.registry.champion``).

    If ``splits`` has a summary of the train split, this is read instead of the split. ``base``: S3
    URI of the model from which the training started, which is scored as baseline ``base_model``. A
    user's script is declared by ``make_evaluate_script_step``.
    """
    train_split = "summary" if "summary" in splits else "train"
    return make_processing_step(
        context,
        "Evaluate",
        image=image,
        compute=config,
        arguments=[
            *format_arguments(config, EvaluateSettings),
            *("--champion", context.parameters["ChampionArn"]),
            *([f"--{BASE}", base] if base else []),
        ],
        inputs=[
            make_input("model", train.properties.ModelArtifacts.S3ModelArtifacts),
            make_input(train_split, splits[train_split]),
            make_input("test", splits["test"]),
            make_input("champion", context.parameters["ChampionModelUri"]),
            *([make_input(BASE, base)] if base else []),
        ],
        outputs=["evaluation", "scores"],
        property_files=[EVALUATION],
        display_name="Evaluate on held-out data",
        description="Score the model, the champion and the baselines on the test split",
    )


def make_evaluate_script_step(
    context: StepContext,
    config: EvaluateConfig,
    *,
    image: str,
    splits: Splits,
    train: TrainingStep,
    folder: str,
    entry: str,
    requirements: str | None,
    leaks: Sequence[Leaks],
    request: Sequence[str] = (),
) -> ProcessingStep:
    """Declare the step with the same outputs as ``make_evaluate_step``, for a user's script.

    Args:
        folder: S3 URI of the folder that is sent; it contains ``entry`` and ``requirements``.
        request: name of a sample request in the folder, its MIME type, and the response's MIME
            type.
        leaks: leaks that the gate limits, for which the script has to list its training examples.
    """
    channels = [
        *(make_input(split, splits[split]) for split in (SPLITS if splits else ())),
        *(make_input(name, uri) for name, uri in config.channels.items()),
    ]
    arguments = json.dumps(config.arguments)
    return make_processing_step(
        context,
        "Evaluate",
        image=image,
        compute=config,
        arguments=[
            *("--script", entry),
            *("--metrics", *(f"{name}={better}" for name, better in config.metrics.items())),
            *("--channels", *(channel.input_name for channel in channels)),
            *(("--arguments", *split_argument(arguments)) if config.arguments else ()),
            *(("--slices", *config.slices) if config.slices else ()),
            *(("--baselines", *config.baselines) if config.baselines else ()),
            *(("--leaks", *leaks) if leaks else ()),
            *(("--request", *request) if request else ()),
            *("--champion", context.parameters["ChampionArn"]),
        ],
        inputs=[
            make_input("model", train.properties.ModelArtifacts.S3ModelArtifacts),
            make_input("champion", context.parameters["ChampionModelUri"]),
            make_input("script", folder),
            *channels,
        ],
        outputs=["evaluation", "scores"],
        property_files=[EVALUATION],
        environment={"SCRIPT_REQUIREMENTS": requirements} if requirements else {},
        display_name="Evaluate on held-out data",
        description=f"Score the model and the champion by {entry}",
    )
