"""Role by role: its policy, derived. Here are those that every pipeline has."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.expressions import ExpressionError
from trainyard.permissions import jobs, pipeline
from trainyard.permissions.resources import service_role
from trainyard.permissions.statements import Statement, policy
from trainyard.permissions.subject import Subject, role_parts
from trainyard.permissions.table import role, role_named


def derive(subject: Subject, name: str, job_role: str | None = None) -> dict[str, Any]:
    """The policy document of one role; ``job_role`` chooses among several that jobs assume.

    Raises:
        DefinitionError: there is no such role, a step's type is not covered, or the document is no
            definition.
    """
    found = role_named(name)
    try:
        return policy(found.statements(replace(subject, job_role=job_role)))
    except ExpressionError as error:
        raise DefinitionError(f"pipeline {subject.name}: {error}") from None
    # Anyone's JSON may come here, and whether it is a definition, validation says field by field.
    except (AttributeError, KeyError, TypeError) as error:
        raise DefinitionError(
            f"pipeline {subject.name}: is no pipeline definition ({error!r}): trainyard validate "
            "says what is wrong with it"
        ) from error


def _job_role(subject: Subject, derived: dict[str, Any]) -> dict[str, Any]:
    kinds = ("processing-job", "training-job")
    sources = [subject.arn("sagemaker", f"{kind}/*") for kind in kinds]
    name = role_parts(subject.job_roles[0])[2]
    return service_role(name, "sagemaker", sources, derived, "Runs the jobs")


@role("job", logical="JobRole", place=1, resource=_job_role)
def job_statements(subject: Subject) -> Iterator[Statement]:
    """What the jobs do."""
    if subject.job_role is None and len(subject.job_roles) > 1:
        raise DefinitionError(
            f"the jobs assume {len(subject.job_roles)} roles: choose one with --job-role: "
            f"{', '.join(subject.job_roles)}"
        )
    first = next(iter(subject.job_roles), subject.role)
    return jobs.statements(subject, subject.job_role or first)


def _pipeline_role(subject: Subject, derived: dict[str, Any]) -> dict[str, Any]:
    sources = [subject.arn("sagemaker", f"pipeline/{subject.name}/*")]
    said = "Makes the jobs and registers the model"
    return service_role(role_parts(subject.role)[2], "sagemaker", sources, derived, said)


role("pipeline", logical="PipelineRole", place=2, resource=_pipeline_role)(pipeline.statements)


def _events_role(subject: Subject, derived: dict[str, Any]) -> dict[str, Any]:
    sources = [subject.arn("events", f"rule/{subject.name}-*")]
    name = f"{subject.name}-events"
    return service_role(name, "events", sources, derived, "Starts on a schedule")


@role("events", logical="EventsRole", place=5, resource=_events_role)
def events_statements(subject: Subject) -> Iterator[Statement]:
    """Start the pipeline on a schedule.

    Messages about a run's end need no role: EventBridge publishes to SNS by the topic's own policy,
    and its user guide ("Using resource-based policies") warns against a role there.
    """
    yield Statement(
        sid="StartOnSchedule",
        actions=("sagemaker:StartPipelineExecution",),
        resources=(subject.arn("sagemaker", f"pipeline/{subject.name}"),),
    )
