"""Declare the choose step: a small job that compares the best trainings of the tune step."""

from collections.abc import Sequence

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.steps import ProcessingStep, Step

from steps.config import ProcessingCompute
from steps.context import StepContext
from steps.processing import input_folder, processing_step
from steps.train.step import Found
from steps.tune.config import TuneConfig
from steps.tune.step import TuneStep

CHOICE = PropertyFile(name="Choice", output_name="choice", path="choice.json")


def choose_step(
    context: StepContext,
    config: TuneConfig,
    compute: ProcessingCompute,
    *,
    image: str,
    tune: TuneStep,
) -> ProcessingStep:
    """Declare the step with output ``choice``: choice.json, the property file Choice, and
    overlay.yaml with the chosen values as a recipe's fields.
    """
    names = [f"top{rank}" for rank in range(config.judged)]
    jobs = [tune.properties.TrainingJobSummaries[rank] for rank in range(config.judged)]
    # As the tuning job has it: answered from the cache, it lies in an earlier run's folder.
    folder = tune.properties.TrainingJobDefinition.OutputDataConfig.S3OutputPath
    uris = [
        Join(on="/", values=[folder, job.TrainingJobName, "output/output.tar.gz"]) for job in jobs
    ]
    counters = tune.properties.TrainingJobStatusCounters
    counts = {"completed": counters.Completed, "stopped": counters.Stopped}
    arguments: list[str | PipelineVariable] = ["--names", *config.ranges, "--inputs", *names]
    for name, count in counts.items():
        arguments += [f"--{name}", count.to_string()]
    return processing_step(
        context,
        "Choose",
        image=image,
        compute=compute,
        arguments=arguments,
        inputs=[input_folder(name, uri) for name, uri in zip(names, uris, strict=True)],
        outputs=["choice"],
        property_files=[CHOICE],
        display_name="Judge the best again",
        description="Compare the best trainings on samples that none of them was validated on",
    )


def found_by(tune: Sequence[Step], config: TuneConfig | None) -> Found | None:
    """Return what the steps Tune and, if there is one, Choose have found; None without any."""
    if not tune or config is None:
        return None
    search = tune[0].properties
    compared = search.TrainingJobStatusCounters.Completed.to_string()
    if len(tune) == 1:
        best = search.BestTrainingJob
        values = {name: best.TunedHyperParameters[name] for name in config.ranges}
        return Found(best.TrainingJobName, values, compared)
    values = {name: _chosen("values", name) for name in config.ranges}
    return Found(_chosen("training_job"), values, compared)


def _chosen(*path: str) -> PipelineVariable:
    """Return a value of choice.json as a string."""
    value = JsonGet(step_name="Choose", property_file="Choice", json_path=".".join(path))
    return Join(on="", values=[value])
