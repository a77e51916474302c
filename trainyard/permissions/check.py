"""A given policy against the derived one: what is missing, what is too much, by meaning.

Two policies that allow the same are equal here, whatever the order, grouping and spelling of their
statements: compared are action × resource × conditions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainyard.common.errors import DefinitionError
from trainyard.permissions.statements import covers

# IAM treats the two of a pair alike once the value has no wildcard, and Arn… always.
_LIKE = {"stringequals": "stringlike", "arnequals": "arnlike"}
_NARROWING = {"stringlike", "arnlike", "bool", "foranyvalue:stringequals", "null"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One action on one resource that only one of the two policies allows."""

    kind: Literal["shortage", "excess"]
    sid: str
    action: str
    resource: str
    conditions: str

    def __str__(self) -> str:
        under = f" if {self.conditions}" if self.conditions else ""
        return f"{self.kind} {self.sid}: {self.action} on {self.resource}{under}"


@dataclass(frozen=True, slots=True)
class _Grant:
    sid: str
    action: str
    resource: str
    conditions: Mapping[tuple[str, str], frozenset[str]]

    def within(self, other: "_Grant") -> bool:
        """Whether ``other`` allows all that this one does."""
        return (
            covers(other.action.lower(), self.action.lower())
            and covers(other.resource, self.resource)
            and all(
                _implied(key, values, self.conditions) for key, values in other.conditions.items()
            )
        )

    def meets(self, other: "_Grant") -> bool:
        """Whether some request falls under both, conditions aside (for Deny)."""
        return (
            covers(other.action.lower(), self.action.lower())
            or covers(self.action.lower(), other.action.lower())
        ) and (covers(other.resource, self.resource) or covers(self.resource, other.resource))

    def difference(self, kind: Literal["shortage", "excess"]) -> Difference:
        told = (f"{o} {k} {sorted(v)}" for (o, k), v in sorted(self.conditions.items()))
        return Difference(kind, self.sid, self.action, self.resource, ", ".join(told))


def _implied(
    key: tuple[str, str],
    wide: frozenset[str],
    conditions: Mapping[tuple[str, str], frozenset[str]],
) -> bool:
    narrow = conditions.get(key)
    if narrow is None:
        return False
    if key[0] not in _NARROWING:  # negations and numbers: only what is the same is implied
        return narrow == wide
    return all(any(covers(w, n) for w in wide) for n in narrow)


def compare(derived: Mapping[str, Any], given: Mapping[str, Any]) -> list[Difference]:
    """Shortages first, then excesses, each in the order of its policy.

    A Deny in ``given`` that touches something needed makes it a shortage, whatever its conditions.

    Raises:
        DefinitionError: ``given`` is no policy, or uses NotAction or NotResource.
    """
    needed, allowed = list(_grants(derived, "Allow")), list(_grants(given, "Allow"))
    denied = list(_grants(given, "Deny"))
    short = [
        need
        for need in needed
        if not any(need.within(grant) for grant in allowed) or any(need.meets(d) for d in denied)
    ]
    over = [grant for grant in allowed if not any(grant.within(need) for need in needed)]
    return [g.difference("shortage") for g in short] + [g.difference("excess") for g in over]


def _grants(policy: Mapping[str, Any], effect: str) -> Iterator[_Grant]:
    statements = policy.get("Statement")
    if statements is None:
        raise DefinitionError("the policy has no Statement; expected an IAM policy document")
    for number, statement in enumerate(_listed(statements), 1):
        if statement.get("Effect") != effect:
            continue
        sid = statement.get("Sid", f"statement {number}")
        if not {"Action", "Resource"} <= set(statement):
            raise DefinitionError(
                f"{sid}: has no Action or no Resource; NotAction and NotResource allow what nobody "
                "listed, so they cannot be compared: list what is meant"
            )
        conditions = dict(_conditions(statement.get("Condition") or {}))
        for action in _listed(statement["Action"]):
            for resource in _listed(statement["Resource"]):
                yield _Grant(sid, action, resource, conditions)


def _conditions(
    condition: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    for operator, keys in condition.items():
        name = _LIKE.get(operator.lower(), operator.lower())
        for key, values in keys.items():
            yield (name, key.lower()), frozenset(str(v) for v in _listed(values))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]
