"""Cleanup step: delete outputs of earlier steps from S3, and record which steps were cleaned."""

from collections.abc import Iterator
from typing import Any

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.jobs.transfers import ClientFault, split_uri
from trainyard.emulator.sagemaker.pipelines.steps.runner import Attempt, Runner, StepFailed, runs
from trainyard.language.evaluation import Scope, evaluate_value
from trainyard.language.expressions import ExpressionError

NETWORKS = ("VpcConfig", "NetworkConfig.VpcConfig")
ROOTS = ("ProcessingOutputConfig", "TransformOutput.S3OutputPath")
"""Properties that name the output locations of a step's job, for the types that need S3Uris."""


@runs("Cleanup")
class CleanupRunner(Runner):
    """Delete the outputs of one step after another, as SDK 3.27's CleanupStep documents.

    The output of a training step is known: everything below ``<S3OutputPath>/<job>/output/``. For
    other steps, exactly the objects in S3Uris are deleted, and they must be below a location to
    which that step writes. If the outputs of a step cannot be deleted, the others are still
    processed and then this step fails; AWS does not document this.
    """

    resolves = True

    @staticmethod
    def check(arguments: dict[str, Any]) -> None:
        resources = arguments.get("Resources")
        sources = resources.get("S3") if isinstance(resources, dict) else None
        if not isinstance(sources, list) or not sources:
            raise ExpressionError("Resources.S3: expected a list with at least one source")
        for source in sources:
            if not isinstance(source, dict) or not isinstance(source.get("StepName"), str):
                raise ExpressionError(f"Resources.S3: {source!r} has no StepName")

    def run(self, attempt: Attempt) -> None:
        metadata: dict[str, list] = {"CleanedSteps": [], "FailedSteps": [], "SkippedSteps": []}
        for source in attempt.arguments["Resources"]["S3"]:
            name = source["StepName"]
            try:
                uris = _iter_output_uris(name, source.get("S3Uris"), attempt.scope)
            except ExpressionError:  # the step was not run or has no output
                metadata["SkippedSteps"].append(name)
                continue
            try:
                self._delete(list(uris))
                metadata["CleanedSteps"].append(name)
            except (ClientFault, ApiError) as error:
                message = error.message if isinstance(error, ApiError) else str(error)
                failure = {"StepName": name, "ErrorCode": "ClientError", "ErrorMessage": message}
                metadata["FailedSteps"].append(failure)
        attempt.note(metadata)
        if failures := metadata["FailedSteps"]:
            first = f"{failures[0]['StepName']}: {failures[0]['ErrorMessage']}"
            raise StepFailed(f"ClientError: the outputs of {len(failures)} steps remain; {first}")

    def _delete(self, uris: list[str]) -> None:
        """Delete the objects at the URIs. All URIs were checked before, so either all are deleted
        or none.
        """
        for uri in uris:
            bucket, key = split_uri(uri)
            if not uri.endswith("/"):
                self._services.objects.delete(bucket, key)
                continue
            for info in list(self._services.objects.list(bucket, key)):
                self._services.objects.delete(bucket, info.key)


def _iter_output_uris(step: str, uris: Any, scope: Scope) -> Iterator[str]:
    """Iterate over the URIs of a step's outputs: objects, or folders (with ``/`` at the end).

    Raises:
        ExpressionError: the step has no properties that name its output.
        ClientFault: an object must not be deleted (raised during the iteration).
    """
    if uris is None and (job := _read_property(scope, step, "TrainingJobName")):
        root = scope.property(step, "OutputDataConfig.S3OutputPath")
        return _iter_deletable_uris(step, [f"{root.rstrip('/')}/{job}/output/"], [root], scope)
    roots = [root for path in ROOTS for root in _list_roots(_read_property(scope, step, path))]
    if not roots:
        raise ExpressionError(f"step {step!r} has no properties that name its output")
    return _iter_deletable_uris(
        step, None if uris is None else evaluate_value(uris, scope), roots, scope
    )


def _iter_deletable_uris(step: str, uris: Any, roots: list[str], scope: Scope) -> Iterator[str]:
    """Iterate over the URIs to delete. Raises ClientFault if the step has a VpcConfig, if ``uris``
    is None, or if one of them is not below ``roots``.
    """
    if any(_read_property(scope, step, path) for path in NETWORKS):
        raise ClientFault(f"step {step!r} has a VpcConfig: its outputs cannot be deleted")
    if uris is None:
        raise ClientFault(f"step {step!r}: S3Uris are required: list the objects to delete")
    for uri in uris:
        if not any(str(uri).startswith(f"{root.rstrip('/')}/") for root in roots):
            raise ClientFault(
                f"{uri!r} is not below a location of step {step!r}: {', '.join(roots)}"
            )
        yield str(uri)


def _read_property(scope: Scope, step: str, path: str) -> Any:
    try:
        return scope.property(step, path)
    except ExpressionError:
        return None


def _list_roots(value: Any) -> list[str]:
    """Return the output locations in a property's value."""
    if isinstance(value, str):
        return [value]
    outputs = value.get("Outputs", []) if isinstance(value, dict) else []
    return [output["S3Output"]["S3Uri"] for output in outputs if "S3Output" in output]
