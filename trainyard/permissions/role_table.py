"""The roles whose policies can be derived; all register themselves, an application's, too."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.common.errors import DefinitionError, nearest
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.statements import Gap, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role around a pipeline, or a policy for existing roles."""

    name: str
    logical: str
    """Logical ID of its resource in the template."""

    place: int
    """Place among the others."""

    resource: Callable[[Subject, dict[str, Any]], dict[str, Any]]
    """Return CloudFormation's resource for a pipeline and the derived policy."""

    statements: Callable[[Subject], Iterator[Statement | Gap]]

    exists: Callable[[Subject], bool] = lambda subject: True
    """Return whether the pipeline needs it."""


_ROLES: dict[str, Role] = {}


def role(name: str, **fields: Any) -> Callable[[Callable], Callable]:
    """Register the role whose statements the function yields; ``fields`` are :class:`Role`'s."""

    def register(statements: Callable[[Subject], Iterator[Statement | Gap]]) -> Callable:
        if name in _ROLES:
            raise ValueError(f"{statements.__module__}: there is a role {name} already")
        _ROLES[name] = Role(name=name, statements=statements, **fields)
        return statements

    return register


def roles(subject: Subject | None = None) -> list[Role]:
    """Return every role, or those that a pipeline needs, in the order in which a template and
    messages name them.
    """
    selection = (role for role in _ROLES.values() if subject is None or role.exists(subject))
    return sorted(selection, key=lambda role: role.place)


def role_named(name: str) -> Role:
    """Return the role ``name``.

    Raises:
        DefinitionError: there is no such role.
    """
    if name not in _ROLES:
        names = [role.name for role in roles()]
        raise DefinitionError(f"--role {name}: is not a role; {nearest(name, names)}")
    return _ROLES[name]
