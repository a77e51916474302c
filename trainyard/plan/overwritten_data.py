"""Data that was written after the run whose result the cache reuses.

The cache compares a step's arguments, and those contain only the prefixes of its data and of its
result: what lies there may have changed since the step read or made it. S3's listing does not show
deleted objects.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import error_code
from trainyard.language.evaluation import Start, evaluate
from trainyard.language.expressions import ExpressionError, values
from trainyard.plan.cache_prediction import Outcome, Run
from trainyard.plan.definition_diff import CODE, steps
from trainyard.plan.s3_listing import MOST, list_objects

FIX = "put new data under a new prefix, or turn the step's cache off"
FIX_OUTPUT = "put Execution.PipelineExecutionId into its prefix, or turn the step's cache off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwritten:
    """An input of a cached step that changed after the step read it, or its output after it."""

    step: str
    uri: str
    run: str
    """ID of the run that read or made it."""

    is_output: bool

    fix: str
    """Advice on what to do about it."""

    count: int = 0
    """Objects that were written since."""

    newest: str = ""
    """Key of the newest object."""

    when: datetime | None = None
    looked_at: int = 0
    list_error: str = ""
    """Reason why it cannot be known."""

    def __str__(self) -> str:
        verb = "made" if self.is_output else "read"
        if self.list_error:
            return (
                f"{self.step} is cached, and it is not known whether {self.uri} is still what run "
                f"{self.run} {verb}: it cannot be listed ({self.list_error})"
            )
        total = f"{self.looked_at:,}" if self.looked_at < MOST else f"the first {MOST:,}"
        effect = (
            "the next steps read those, as AWS does not look at the result that it reuses (an "
            "emulator runs the step again when the bytes differ)"
            if self.is_output
            else "the run will not see them"
        )
        return (
            f"{self.step} is cached, but {self.count:,} of {total} objects under {self.uri} were "
            f"written after run {self.run} {verb} them ({self.newest} at "
            f"{self.when:%Y-%m-%d %H:%M} UTC): {effect}; {self.fix}"
        )


def overwritten(
    s3: Any, document: Mapping[str, Any], outcomes: Sequence[Outcome], fix: str = FIX
) -> list[Overwritten]:
    """Return the changed inputs and outputs of each cached step; parameters have their defaults.

    ``fix``: what to do about an input, in the caller's words.
    """
    everything, defaults = steps(document), values(document, {})
    results = []
    for outcome in outcomes:
        if outcome.answer == "cached" and (run := outcome.source):
            for uri in dict.fromkeys(_inputs(everything[outcome.step], defaults)):
                results.append(_check_location(s3, outcome.step, run, uri, fix))
            for uri in outcome.places:
                results.append(
                    _check_location(s3, outcome.step, run, uri, FIX_OUTPUT, is_output=True)
                )
    return [item for item in results if item.count or item.list_error]


def _inputs(step: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over URIs that people write to: no step's output, and no code named by content."""
    arguments = step.get("Arguments") or {}
    sources = [
        processing_input.get("S3Input")
        for processing_input in arguments.get("ProcessingInputs") or ()
    ]
    sources += [
        (channel.get("DataSource") or {}).get("S3DataSource")
        for channel in arguments.get("InputDataConfig") or ()
    ]
    for source in sources:
        try:
            uri = evaluate((source or {}).get("S3Uri"), Start(defaults))
        except ExpressionError:
            # A function of the language that is not known here.
            continue
        if isinstance(uri, str) and uri.startswith("s3://") and not CODE.match(uri):
            yield uri


def _check_location(
    s3: Any, step: str, run: Run, uri: str, fix: str, *, is_output: bool = False
) -> Overwritten:
    # An input counts from the start, when the step read it; an output from the end, since the step
    # itself wrote it before.
    then = run.steps[step].end_time if is_output else run.steps[step].start_time
    make = partial(Overwritten, step=step, uri=uri, run=run.id, fix=fix, is_output=is_output)
    try:
        objects = list_objects(s3, uri)
    except ClientError as error:
        return make(list_error=error_code(error))
    since = [item for item in objects if item["LastModified"] > then]
    newest = max(since, key=lambda item: item["LastModified"], default=None)
    return make(
        count=len(since),
        newest=newest["Key"] if newest else "",
        when=newest["LastModified"] if newest else None,
        looked_at=len(objects),
    )
