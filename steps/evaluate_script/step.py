"""Declare the evaluate step where a script of the user's own scores each example."""

import json
from collections.abc import Sequence

from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep

from steps.context import StepContext
from steps.evaluate.config import EvaluateConfig
from steps.evaluate.step import EVALUATION
from steps.evaluate_script.config import Leaks
from steps.processing import Splits, input_folder, processing_step, split_argument

SPLITS = ("train", "test")


def evaluate_script_step(
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
    """Declare the step with the outputs of ``steps.evaluate.step.evaluate_step``, by
    ``steps.evaluate_script.job``.

    Args:
        folder: S3 URI of the folder that is sent; it holds ``entry`` and ``requirements``.
        request: name of a sample request in the folder, its MIME type, and its answer's MIME type.
        leaks: leaks that the gate limits, for which the script has to list its training examples.
    """
    channels = [
        *(input_folder(split, splits[split]) for split in (SPLITS if splits else ())),
        *(input_folder(name, uri) for name, uri in config.channels.items()),
    ]
    arguments = json.dumps(config.arguments)
    return processing_step(
        context,
        "Evaluate",
        job="evaluate_script",
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
            input_folder("model", train.properties.ModelArtifacts.S3ModelArtifacts),
            input_folder("champion", context.parameters["ChampionModelUri"]),
            input_folder("script", folder),
            *channels,
        ],
        outputs=["evaluation", "scores"],
        property_files=[EVALUATION],
        environment={"SCRIPT_REQUIREMENTS": requirements} if requirements else {},
        display_name="Evaluate on held-out data",
        description=f"Score the model and the champion by {entry}",
    )
