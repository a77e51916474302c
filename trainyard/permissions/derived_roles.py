"""Derive each role's policy. This module has the roles that every pipeline has."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.expressions import ExpressionError
from trainyard.permissions import pipeline_role
from trainyard.permissions.job_role import statements
from trainyard.permissions.pipeline_subject import Subject, role_parts
from trainyard.permissions.role_table import role, role_named
from trainyard.permissions.role_template import service_role
from trainyard.permissions.statements import Gap, Statement, policy
from trainyard.permissions.step_requests import all_requests, job_roles


def derive(subject: Subject, name: str, job_role: str | None = None) -> dict[str, Any]:
    """Return the policy document of one role; ``job_role`` chooses among several that jobs assume.

    Raises:
        DefinitionError: the role does not exist, or the document is not a definition.
    """
    return policy(_statements(subject, name, job_role))


def missing(subject: Subject, name: str, job_role: str | None = None) -> list[str]:
    """Return the role's needs beyond :func:`derive`'s policy that no definition has, by step.

    Raises:
        DefinitionError: see :func:`derive`.
    """
    results = _statements(subject, name, job_role)
    return list(dict.fromkeys(gap.says for gap in results if isinstance(gap, Gap)))


def _statements(subject: Subject, name: str, job_role: str | None) -> list[Statement | Gap]:
    role = role_named(name)
    try:
        return list(role.statements(replace(subject, job_role=job_role)))
    except ExpressionError as error:
        raise DefinitionError(f"pipeline {subject.name}: {error}") from None
    # The JSON comes from users; validation checks field by field whether it is a definition.
    except (AttributeError, KeyError, TypeError) as error:
        raise DefinitionError(
            f"pipeline {subject.name}: is not a pipeline definition ({error!r}): trainyard "
            "validate says what is wrong with it"
        ) from error


def _job_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    types = {step.type for step, _ in all_requests(subject)}
    # Models, endpoints and tuning jobs assume it under ARNs of their own.
    plain = types <= {"Processing", "Training", "QualityCheck", "ClarifyCheck"}
    kinds = ("processing-job/*", "training-job/*") if plain else ("*",)
    sources = [subject.arn("sagemaker", kind) for kind in kinds]
    name = role_parts(job_roles(subject)[0])[2]
    return service_role(name, "sagemaker", sources, policy, "Runs the jobs")


@role("job", logical="JobRole", place=1, resource=_job_role)
def job_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Iterate over the statements of the jobs' role."""
    role_names = job_roles(subject)
    if subject.job_role is None and len(role_names) > 1:
        raise DefinitionError(
            f"the jobs assume {len(role_names)} roles: choose one with --job-role: "
            f"{', '.join(role_names)}"
        )
    first = next(iter(role_names), subject.role)
    return statements(subject, subject.job_role or first)


def _pipeline_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    sources = [subject.arn("sagemaker", f"pipeline/{subject.name}/*")]
    description = "Makes the jobs and registers the model"
    return service_role(role_parts(subject.role)[2], "sagemaker", sources, policy, description)


role("pipeline", logical="PipelineRole", place=2, resource=_pipeline_role)(pipeline_role.statements)


def _events_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    sources = [subject.arn("events", f"rule/{subject.name}-*")]
    name = f"{subject.name}-events"
    return service_role(name, "events", sources, policy, "Starts on a schedule")


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
