"""Role by role: its policy, derived."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.expressions import ExpressionError
from trainyard.permissions import ci_roles as around
from trainyard.permissions import jobs, pipeline
from trainyard.permissions.statements import Statement, policy
from trainyard.permissions.subject import Subject


class Role(StrEnum):
    """The roles whose policies can be derived."""

    JOB = "job"
    PIPELINE = "pipeline"
    PLAN = "plan"
    CI = "ci"
    EVENTS = "events"


def derive(subject: Subject, role: str, job_role: str | None = None) -> dict[str, Any]:
    """The policy document of one role; ``job_role`` chooses among several that jobs assume.

    Raises:
        DefinitionError: a step's type is not covered, the role is not named clearly, or the
            document is no definition.
    """
    try:
        return policy(_statements(subject, Role(role), job_role))
    except ExpressionError as error:
        raise DefinitionError(f"pipeline {subject.name}: {error}") from None
    # Anyone's JSON may come here, and whether it is a definition, validation says field by field.
    except (AttributeError, KeyError, TypeError) as error:
        raise DefinitionError(
            f"pipeline {subject.name}: is no pipeline definition ({error!r}): python -m "
            "pipelines.validate says what is wrong with it"
        ) from error


def _statements(subject: Subject, role: Role, job_role: str | None) -> Iterator[Statement]:
    if role == Role.PIPELINE:
        return pipeline.statements(subject)
    if role == Role.PLAN:
        return around.plan_statements(subject)
    if role == Role.CI:
        return around.ci_statements(subject)
    if role == Role.EVENTS:
        return around.events_statements(subject)
    if job_role is None and len(subject.job_roles) > 1:
        raise DefinitionError(
            f"the jobs assume {len(subject.job_roles)} roles: choose one with --job-role: "
            f"{', '.join(subject.job_roles)}"
        )
    return jobs.statements(subject, job_role or next(iter(subject.job_roles), subject.role))
