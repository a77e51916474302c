"""Check the step cache: does it ever hit?"""

import re
from collections.abc import Iterator
from typing import Any

from trainyard.language.definition_document import Step, select_cache_key_arguments
from trainyard.language.expressions import GET
from trainyard.validate.rules.job_view import Job, iter_strings, select_training_jobs
from trainyard.validate.rules.rule import Violation, rule, select_steps

EVER_NEW = ("PipelineExecutionId", "PipelineExecutionArn", "StartDateTime", "CurrentDateTime")
"""Execution variables that have another value in each execution of the pipeline."""
TIMESTAMP = re.compile(
    r"(?<!\d)20\d\d-?[01]\d-?[0-3]\d[-T_]?[0-2]\d[-:]?[0-5]\d[-:]?[0-5]\d(?!\d{4})"
)
"""A date with a time, as at the end of the SDK's job names."""


def _iter_key_arguments(step: Step) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, value) of each argument that the step cache compares."""
    key = select_cache_key_arguments(dict(step.document), dict(step.arguments)) or {}
    for name, value in key.items():
        yield f"{step.path}.Arguments.{name}", value


@rule(
    "warning",
    select=select_steps,
    reason="it is part of the cache key, and no two runs share it: the step runs each time",
    fix="take it out of the step's inputs, code, environment and hyperparameters, or turn the "
    "cache off",
    source="developer guide, pipelines-default-keys; #2736 #4374",
)
def never_hits_the_cache(step: Step) -> Iterator[Violation]:
    for path, value in _iter_key_arguments(step):
        for text_path, text in iter_strings(value, path):
            name = text.removeprefix("Execution.")
            if text_path.endswith(f".{GET}") and name in EVER_NEW and name != text:
                yield Violation(
                    step=step, path=text_path.removesuffix(f".{GET}"), problem=f"contains {text}"
                )


@rule(
    "warning",
    select=select_steps,
    reason="it is part of the cache key: if it is the time of an upload, no upsert reuses a result",
    fix="name the object by its content",
    source="developer guide, pipelines-default-keys; #2736 #2940 #3384",
)
def timestamp_in_cache_key(step: Step) -> Iterator[Violation]:
    for path, value in _iter_key_arguments(step):
        for text_path, text in iter_strings(value, path):
            if match := TIMESTAMP.search(text):
                problem = f"{text!r} contains the time {match[0]}"
                yield Violation(step=step, path=text_path, problem=problem)


@rule(
    "warning",
    select=select_training_jobs,
    reason="a run that continues an interrupted one does not find its checkpoints",
    fix="name the prefix by what the weights depend on, not by the run",
    source="developer guide, model-checkpoints: the same checkpoint_s3_uri resumes; #1040",
)
def checkpoints_of_one_run(job: Job) -> Iterator[Violation]:
    field = "CheckpointConfig.S3Uri"
    # An algorithm of AWS's would resume from any checkpoint that is there, even one for other data:
    # for it, a prefix of one execution is right.
    if job.runs_algorithm:
        return
    names = [text.removeprefix("Execution.") for _, text in iter_strings(job.read_raw(field))]
    for name in EVER_NEW:
        if name in names:
            yield job.make_violation(field, f"contains Execution.{name}")
