"""Check the tags of jobs, by which costs are allocated and permissions are given."""

from collections.abc import Iterator

from trainyard.language.definition_document import Document
from trainyard.validate.rules.job_view import Job, iter_jobs
from trainyard.validate.rules.rule import Violation, rule, select_document


def _build_tags_path(job: Job) -> str:
    """Return the path of the job's tags. A tuning step has them outside its definitions."""
    return f"{job.step.path}.Arguments.Tags"


def _list_tag_keys(job: Job) -> list[str]:
    tags = job.document.resolve_value(job.step.arguments.get("Tags"))
    entries = tags if isinstance(tags, list) else []
    return [str(tag["Key"]) for tag in entries if isinstance(tag, dict) and "Key" in tag]


@rule(
    "warning",
    select=select_document,
    reason="their costs are not allocated, and a role that may access only tagged jobs is refused",
    fix="tag the jobs (aws.tags in a recipe); the role needs sagemaker:AddTags",
    source="Billing user guide, cost allocation tags; "
    "aws-samples/sagemaker-custom-project-templates#41, aws-cdk#32294 #26012",
)
def no_tags(document: Document) -> Iterator[Violation]:
    names = [job.step.name for job in iter_jobs(document) if not job.step.arguments.get("Tags")]
    if names:
        step_names = ", ".join(dict.fromkeys(names))
        yield Violation(step=None, path="$.Steps", problem=f"no tags on the jobs of {step_names}")


@rule(
    "warning",
    select=select_document,
    reason="a report by that tag leaves the job out",
    fix="give every job the same tags",
    source="Billing user guide, cost allocation tags",
)
def uneven_tags(document: Document) -> Iterator[Violation]:
    job_tags = [(job, set(_list_tag_keys(job))) for job in iter_jobs(document)]
    job_tags = [(job, keys) for job, keys in job_tags if keys]
    all_keys = {key for _, keys in job_tags for key in keys}
    for job, keys in job_tags:
        if missing := sorted(all_keys - keys):
            problem = f"lacks {', '.join(missing)}, which other jobs have"
            yield Violation(step=job.step, path=_build_tags_path(job), problem=problem)


@rule(
    "error",
    select=iter_jobs,
    reason="the service refuses the job",
    fix="use a key that does not begin with aws:",
    source="API reference, Tag; Tagging AWS resources: aws: is reserved",
)
def tag_key_refused(job: Job) -> Iterator[Violation]:
    keys = _list_tag_keys(job)
    reserved_keys = [key for key in keys if key.lower().startswith("aws:")]
    for key in reserved_keys:
        yield Violation(
            step=job.step, path=_build_tags_path(job), problem=f"{key!r} is reserved for AWS"
        )
