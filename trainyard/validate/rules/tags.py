"""Check tags, by which costs are allocated and permissions given."""

from collections import Counter
from collections.abc import Iterator

from trainyard.language.definition_document import Document
from trainyard.validate.rules.job_view import Job, jobs
from trainyard.validate.rules.rule import Violation, rule, whole


def _at(job: Job) -> str:
    """Return the path of the job's tags: a tuning step has them beside its definitions."""
    return f"{job.step.path}.Arguments.Tags"


def _keys(job: Job) -> list[str]:
    tags = job.document.value(job.step.arguments.get("Tags"))
    known = tags if isinstance(tags, list) else []
    return [str(tag["Key"]) for tag in known if isinstance(tag, dict) and "Key" in tag]


@rule(
    "warning",
    over=whole,
    why="their costs are not allocated, and a role that may only touch tagged jobs is refused",
    fix="tag the jobs (aws.tags in a recipe); the role needs sagemaker:AddTags",
    source="Billing user guide, cost allocation tags; "
    "aws-samples/sagemaker-custom-project-templates#41, aws-cdk#32294 #26012",
)
def no_tags(document: Document) -> Iterator[Violation]:
    names = [job.step.name for job in jobs(document) if not job.step.arguments.get("Tags")]
    if names:
        listed = ", ".join(dict.fromkeys(names))
        yield Violation(step=None, path="$.Steps", problem=f"no tags on the jobs of {listed}")


@rule(
    "warning",
    over=whole,
    why="a report by that tag leaves the job out",
    fix="give every job the same tags",
    source="Billing user guide, cost allocation tags",
)
def uneven_tags(document: Document) -> Iterator[Violation]:
    tagged = [(job, set(_keys(job))) for job in jobs(document)]
    tagged = [(job, keys) for job, keys in tagged if keys]
    usual = {key for _, keys in tagged for key in keys}
    for job, keys in tagged:
        if missing := sorted(usual - keys):
            problem = f"lacks {', '.join(missing)}, which other jobs have"
            yield Violation(step=job.step, path=_at(job), problem=problem)


@rule(
    "error",
    over=jobs,
    why="the service refuses the job",
    fix="name each key once, and none that begins with aws:",
    source="API reference, Tag; Tagging AWS resources: aws: is reserved",
)
def tag_key_refused(job: Job) -> Iterator[Violation]:
    keys = _keys(job)
    twice = [key for key, count in Counter(keys).items() if count > 1]
    reserved = [key for key in keys if key.lower().startswith("aws:")]
    for key in twice:
        yield Violation(step=job.step, path=_at(job), problem=f"{key!r} occurs twice")
    for key in reserved:
        yield Violation(step=job.step, path=_at(job), problem=f"{key!r} is reserved for AWS")
