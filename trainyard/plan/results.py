"""Whether what a step left in S3 is still there, which the emulator's cache asks as well."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from trainyard.language.evaluation import evaluate
from trainyard.language.expressions import ExpressionError
from trainyard.plan.history import History, Run, StepRun, step_of
from trainyard.plan.listing import listed
from trainyard.plan.resolving import Past
from trainyard.service import error_code


def gone(history: History, name: str, run: Run, made: StepRun) -> str:
    """The first place where nothing is left of the step's result; empty where all is there.

    An output that no step of that execution read may have been empty: it counts only where every
    output is.
    """
    if history.s3 is None or (step := step_of(run, name)) is None:
        return ""
    try:
        arguments = evaluate(step.get("Arguments") or {}, Past(run, history))
    except ExpressionError:
        return ""
    places = dict(_places(name, arguments, made.job))
    empty = [uri for uri in places if not _holds(history.s3, uri)]
    text = json.dumps(run.document)
    read = [uri for uri in empty if places[uri] in text]
    return next(iter(read), empty[0] if empty and len(empty) == len(places) else "")


def _places(name: str, arguments: Mapping[str, Any], job: str) -> Iterator[tuple[str, str]]:
    """(URI, how another step refers to it) of each output of a job."""
    steps = f"Steps.{name}"
    for output in (arguments.get("ProcessingOutputConfig") or {}).get("Outputs") or ():
        reference = f"{steps}.ProcessingOutputConfig.Outputs['{output.get('OutputName')}']"
        yield (output.get("S3Output") or {}).get("S3Uri", ""), reference
    if (root := (arguments.get("OutputDataConfig") or {}).get("S3OutputPath")) and job:
        yield f"{str(root).rstrip('/')}/{job}/output/", f"{steps}.ModelArtifacts"
    if root := (arguments.get("TransformOutput") or {}).get("S3OutputPath"):
        yield root, f"{steps}.TransformOutput"


def _holds(s3: Any, uri: Any) -> bool:
    """Whether something lies there, or nobody can tell."""
    if not isinstance(uri, str) or not uri.startswith("s3://"):
        return True
    try:
        return bool(listed(s3, uri, 1))
    except ClientError as error:
        return error_code(error) != "NoSuchBucket"
