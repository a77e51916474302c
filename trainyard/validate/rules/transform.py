"""Check batch transform jobs: size of requests, splitting, and filters."""

from collections.abc import Iterator

from trainyard.language.definition_document import Document
from trainyard.validate.rules.job_view import Job, iter_jobs
from trainyard.validate.rules.rule import Violation, rule

REFUSAL = "CreateTransformJob refuses the request when the step starts"
MOST_MEGABYTES = 100
FILTERS = ("InputFilter", "OutputFilter")


def select_transform_jobs(document: Document) -> list[Job]:
    """Return the transform jobs, for a rule's ``select``."""
    return [job for job in iter_jobs(document) if job.kind == "transform"]


@rule(
    "error",
    select=select_transform_jobs,
    reason=REFUSAL,
    fix=f"lower one of them, so that their product is at most {MOST_MEGABYTES} MB",
    source="botocore: CreateTransformJobRequest.MaxPayloadInMB (documentation)",
)
def payload_too_large(job: Job) -> Iterator[Violation]:
    payload, at_once = (
        job.read_number("MaxPayloadInMB"),
        job.read_number("MaxConcurrentTransforms") or 1,
    )
    if payload is not None and payload * at_once > MOST_MEGABYTES:
        problem = f"{payload:g} MB times {at_once:g} at once is {payload * at_once:g} MB"
        yield job.make_violation("MaxPayloadInMB", problem)


@rule(
    "error",
    select=select_transform_jobs,
    reason=f"{REFUSAL}: nothing says where a record ends",
    fix="set TransformInput.SplitType to Line, RecordIO or TFRecord",
    source="botocore: CreateTransformJobRequest.BatchStrategy (documentation)",
)
def batches_of_unsplit_input(job: Job) -> Iterator[Violation]:
    is_unsplit = job.get("TransformInput.SplitType") in (None, "None")
    if is_unsplit and job.read_text("BatchStrategy") == "MultiRecord":
        yield job.make_violation("BatchStrategy", "MultiRecord without SplitType")


@rule(
    "error",
    select=select_transform_jobs,
    reason=REFUSAL,
    fix="begin it with $, the whole record: $[1:] or $.features",
    source="botocore: DataProcessing.InputFilter and OutputFilter (documentation)",
)
def filter_without_root(job: Job) -> Iterator[Violation]:
    for name in FILTERS:
        field = f"DataProcessing.{name}"
        path = job.read_text(field)
        if path is not None and not path.startswith("$"):
            yield job.make_violation(field, f"{path!r} is not a JSONPath")


@rule(
    "error",
    select=select_transform_jobs,
    reason=f"{REFUSAL}: inputs and results cannot be joined line by line",
    fix="give both the same value: ContentType and Accept, SplitType and AssembleWith",
    source="developer guide, batch-transform-data-processing: workflow for associating inferences",
)
def join_of_unlike_formats(job: Job) -> Iterator[Violation]:
    if job.read_text("DataProcessing.JoinSource") != "Input":
        return
    for input_field, output_field in (("ContentType", "Accept"), ("SplitType", "AssembleWith")):
        first, second = (
            job.get(f"TransformInput.{input_field}"),
            job.get(f"TransformOutput.{output_field}"),
        )
        if isinstance(first, str) and isinstance(second, str) and first != second:
            yield job.make_violation(
                f"TransformOutput.{output_field}", f"{second}, where {input_field} is {first}"
            )
