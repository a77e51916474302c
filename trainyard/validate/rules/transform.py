"""Check batch transform: size of requests, splitting, and filters."""

from collections.abc import Iterator

from trainyard.language.definition_document import Document
from trainyard.validate.rules.job_view import Job, jobs
from trainyard.validate.rules.rule import Violation, rule

REFUSED = "CreateTransformJob refuses the request when the step starts"
MOST_MEGABYTES = 100
FILTERS = ("InputFilter", "OutputFilter")


def transforms(document: Document) -> list[Job]:
    """Return, for ``over``, the transform jobs."""
    return [job for job in jobs(document) if job.kind == "transform"]


@rule(
    "error",
    over=transforms,
    why=REFUSED,
    fix=f"lower one of them, to {MOST_MEGABYTES} MB in all",
    source="botocore: CreateTransformJobRequest.MaxPayloadInMB (documentation)",
)
def payload_too_large(job: Job) -> Iterator[Violation]:
    payload, at_once = job.number("MaxPayloadInMB"), job.number("MaxConcurrentTransforms") or 1
    if payload is not None and payload * at_once > MOST_MEGABYTES:
        problem = f"{payload:g} MB times {at_once:g} at once is {payload * at_once:g} MB"
        yield job.at("MaxPayloadInMB", problem)


@rule(
    "error",
    over=transforms,
    why=f"{REFUSED}: nothing says where a record ends",
    fix="set TransformInput.SplitType to Line, RecordIO or TFRecord",
    source="botocore: CreateTransformJobRequest.BatchStrategy (documentation)",
)
def batches_of_unsplit_input(job: Job) -> Iterator[Violation]:
    whole = job.get("TransformInput.SplitType") in (None, "None")
    if whole and job.text("BatchStrategy") == "MultiRecord":
        yield job.at("BatchStrategy", "MultiRecord without SplitType")


@rule(
    "error",
    over=transforms,
    why=REFUSED,
    fix="begin it with $, the whole record: $[1:] or $.features",
    source="botocore: DataProcessing.InputFilter and OutputFilter (documentation)",
)
def filter_without_root(job: Job) -> Iterator[Violation]:
    for name in FILTERS:
        where = f"DataProcessing.{name}"
        path = job.text(where)
        if path is not None and not path.startswith("$"):
            yield job.at(where, f"{path!r} is not a JSONPath")


@rule(
    "error",
    over=transforms,
    why=f"{REFUSED}: inputs and results cannot be joined line by line",
    fix="give both the same value: ContentType and Accept, SplitType and AssembleWith",
    source="developer guide, batch-transform-data-processing: workflow for associating inferences",
)
def join_of_unlike_formats(job: Job) -> Iterator[Violation]:
    if job.text("DataProcessing.JoinSource") != "Input":
        return
    for given, made in (("ContentType", "Accept"), ("SplitType", "AssembleWith")):
        first, second = job.get(f"TransformInput.{given}"), job.get(f"TransformOutput.{made}")
        if isinstance(first, str) and isinstance(second, str) and first != second:
            yield job.at(f"TransformOutput.{made}", f"{second}, where {given} is {first}")
