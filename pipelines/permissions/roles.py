"""Role by role: its policy, derived."""

from enum import StrEnum
from typing import Any

from errors import DefinitionError
from pipelines.permissions import around, jobs, pipeline
from pipelines.permissions.statements import policy
from pipelines.permissions.subject import Subject


class Role(StrEnum):
    """The roles whose policies can be derived."""

    JOB = "job"
    PIPELINE = "pipeline"
    CI = "ci"
    EVENTS = "events"


def derive(subject: Subject, role: str, job_role: str | None = None) -> dict[str, Any]:
    """The policy document of one role; ``job_role`` chooses among several that jobs assume.

    Raises:
        DefinitionError: a step's type is not covered, or the role is not named clearly.
    """
    if role == Role.JOB:
        chosen = job_role or subject.job_roles[0]
        if job_role is None and len(subject.job_roles) > 1:
            raise DefinitionError(
                f"the jobs assume {len(subject.job_roles)} roles: choose one with --job-role: "
                f"{', '.join(subject.job_roles)}"
            )
        return policy(jobs.statements(subject, chosen))
    derived = {
        Role.PIPELINE: pipeline.statements,
        Role.CI: around.ci_statements,
        Role.EVENTS: around.events_statements,
    }
    return policy(derived[Role(role)](subject))
