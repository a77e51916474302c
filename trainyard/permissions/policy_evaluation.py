"""The decision on a request: IAM user guide, "Policy evaluation logic" and its page on requests
across accounts.

An explicit Deny of any policy decides first. Then service control policies, the resource's policy,
identity policies, the permissions boundary and session policies must allow, in this order. Within
an account the resource's policy suffices: for whom, :func:`_granted` says.
"""

import ipaddress
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from trainyard.permissions.policy_documents import (
    Context,
    MalformedPolicy,
    Policy,
    Statement,
    expression,
)

Kind = Literal[
    "service control policy",
    "resource-based policy",
    "identity-based policy",
    "permissions boundary",
    "session policy",
    "role trust policy",
]
"""Type of a policy, as AWS's messages call it."""
Grant = Literal["direct", "role", "account", ""]
"""To whom a resource's policy gives: to this very session or user, to its role, to the account's
administrators, or to nobody here."""
_ACCOUNT = re.compile(r"(?:arn:[\w-]+:iam::)?(\d{12})(?::root)?")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a request: a user, or a session of a role; or a service in its own name."""

    arn: str
    """ARN of the user or of the session; a service's name."""

    role: str = ""
    """ARN of the session's role."""

    @property
    def account(self) -> str:
        return self.arn.split(":")[4] if self.arn.startswith("arn:") else ""

    @property
    def names(self) -> tuple[str, ...]:
        """ARNs that all mean the principal: its account's, its role's, its own."""
        account_names = [f"arn:aws:iam::{self.account}:root"] if self.account else []
        return tuple(name for name in (*account_names, self.role, self.arn) if name)


@dataclass(frozen=True, slots=True)
class Request:
    """One action on one resource."""

    principal: Principal
    action: str
    resource: str
    context: Context = field(default_factory=dict)
    known_keys: frozenset[str] | None = None
    """Condition keys, in lower case, of which is known whether the request has them, if not all
    are; a name that ends with ``/`` means every key that begins so."""

    owner: str = ""
    """Account of the resource, if it is not the principal's."""

    def knows(self, key: str) -> bool:
        """Return whether it is known what the request has under the condition key."""
        if self.known_keys is None or key in self.context or key in self.known_keys:
            return True
        return f"{key.partition('/')[0]}/" in self.known_keys


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies that a request is held to."""

    identity: tuple[Policy, ...] = ()
    boundary: Policy | None = None
    session: tuple[Policy, ...] = ()
    """Those given to AssumeRole, if any."""

    control: tuple[Policy, ...] = ()
    """Service control policies of the principal's account, if it is in an organization."""

    resource: Policy | None = None
    must_name: bool = False
    """Whether the resource's policy must allow, as a key's and a role's own must."""

    def kinds(self) -> Iterator[tuple[Kind, tuple[Policy, ...]]]:
        yield "service control policy", self.control
        trust: Kind = "role trust policy" if self._is_trust else "resource-based policy"
        yield trust, (self.resource,) if self.resource else ()
        yield "identity-based policy", self.identity
        yield "permissions boundary", (self.boundary,) if self.boundary else ()
        yield "session policy", self.session

    @property
    def _is_trust(self) -> bool:
        """A trust policy is the policy of a resource without the element Resource."""
        return self.resource is not None and all(
            statement.resource is None for statement in self.resource.statements
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request is allowed, and by which policy it is not."""

    request: Request
    is_allowed: bool
    kind: Kind = "identity-based policy"
    """Type of the policy that denies, or lacks an Allow."""

    policy: str = ""
    """Name of the policy with the Deny; of the one that could not be evaluated."""

    sid: str = ""
    unknown: str = ""
    """What of the statement cannot be evaluated here: a key or an operator."""

    @property
    def says(self) -> str:
        """AWS's sentence about a denied request, and which statement denies.

        IAM user guide, "Troubleshoot access denied error messages".
        """
        principal, action = self.request.principal.arn, self.request.action
        quote = '"' if action.startswith("s3:") else ""
        on = f" on resource: {quote}{self.request.resource}{quote}"
        return f"User: {principal} is not authorized to perform: {action}{on} {self._reason}"

    @property
    def _reason(self) -> str:
        location = f" (statement {self.sid} of {self.policy})" if self.sid else ""
        article = "an" if self.kind.startswith("i") else "a"
        article = "the" if self.kind == "role trust policy" else article
        if self.unknown:
            return (
                f"because it is not known here: {self.unknown}, in {article} {self.kind}{location}"
            )
        if self.sid:
            return f"with an explicit deny in {article} {self.kind}{location}"
        return f"because no {self.kind} allows the {self.request.action} action"


class _NotKnown(Exception):
    """A statement may or may not match: the request's value of a condition key is not known."""


def evaluate(request: Request, policies: Policies) -> Decision:
    """Decide on a request. Of a statement that cannot be evaluated, the decision names what."""
    denials = [*_denials(request, policies)]
    # A Deny that is certain comes before one that may apply.
    for denial in sorted(denials, key=lambda decision: bool(decision.unknown)):
        return denial
    doubts: dict[Kind, Decision] = {}
    lacks = _lacking(request, policies, doubts)
    if lacks is None:
        return Decision(request, True)
    return doubts.get(lacks) or Decision(request, False, lacks)


def _denials(request: Request, policies: Policies) -> Iterator[Decision]:
    """Iterate over the Deny statements that apply, or may apply."""
    for kind, some in policies.kinds():
        for policy, statement in ((p, s) for p in some for s in p.statements if not s.allows):
            denial = Decision(request, False, kind, policy.name, statement.sid)
            try:
                if _applies(statement, request):
                    yield denial
            except (_NotKnown, MalformedPolicy) as error:
                yield replace(denial, unknown=str(error))


def _lacking(request: Request, policies: Policies, doubts: dict[Kind, Decision]) -> Kind | None:
    """Return the first type of policy that must allow and does not; note doubtful statements."""
    by_kind = dict(policies.kinds())

    def allows(kind: Kind) -> bool:
        return any(
            statement.allows and _certainly(policy, statement, request, kind, doubts)
            for policy in by_kind[kind]
            for statement in policy.statements
        )

    if policies.control and not allows("service control policy"):
        return "service control policy"
    kind: Kind = "role trust policy" if "role trust policy" in by_kind else "resource-based policy"
    grant = _find_grant(request, policies.resource, kind, doubts)
    across = bool(request.owner) and request.owner != request.principal.account
    if not grant and (across or policies.must_name):
        return kind
    # Within an account, a grant to the very session or user needs nothing else.
    if not across and grant == "direct":
        return None
    # A grant to the role stands for its identity policies; boundary and session policies still
    # limit it.
    is_needed = grant != "role" or across
    if is_needed and not allows("identity-based policy"):
        return "identity-based policy"
    if policies.boundary and not allows("permissions boundary"):
        return "permissions boundary"
    if policies.session and not allows("session policy"):
        return "session policy"
    return None


def _certainly(
    policy: Policy | None,
    statement: Statement,
    request: Request,
    kind: Kind,
    doubts: dict[Kind, Decision],
) -> bool:
    """Return whether an Allow applies; one that cannot be evaluated does not, and is noted."""
    try:
        return _applies(statement, request)
    except (_NotKnown, MalformedPolicy) as error:
        denial = Decision(request, False, kind, policy.name if policy else "", statement.sid)
        doubts.setdefault(kind, replace(denial, unknown=str(error)))
        return False


def _find_grant(
    request: Request, policy: Policy | None, kind: Kind, doubts: dict[Kind, Decision]
) -> Grant:
    """Return to whom the resource's policy gives, where it allows the request at all.

    To the session or user itself (or to everyone, or a service): implicit denies elsewhere do not
    count. To its role: the boundary and session policies still limit it. To its account: identity
    policies decide.
    """
    grants: set[Grant] = set()
    for statement in policy.statements if policy else ():
        if statement.allows and _certainly(policy, statement, request, kind, doubts):
            grants.add(_grant(statement, request.principal))
    order: tuple[Grant, ...] = ("direct", "role", "account")
    return next((grant for grant in order if grant in grants), "")


def _grant(statement: Statement, principal: Principal) -> Grant:
    principals, is_negated = statement.principal or ((), False)
    if is_negated:
        return "direct"
    wildcards = {"*", "AWS:*", f"AWS:{principal.arn}", f"Service:{principal.arn}"}
    if wildcards.intersection(principals):
        return "direct"
    return "role" if f"AWS:{principal.role}" in principals else "account"


def _applies(statement: Statement, request: Request) -> bool:
    """Return whether the statement's every element matches the request.

    Raises:
        _NotKnown: all else matches, and the value of a condition's key is not known.
        MalformedPolicy: all else matches, and IAM has no operator of a condition's name.
    """
    actions, other = statement.action
    lower = (action.lower() for action in actions)
    if _any(lower, request.action.lower(), {}, variables=False) == other:
        return False
    if statement.resource is not None:
        resources, other = statement.resource
        context, variables = request.context, statement.variables
        if _any(resources, request.resource, context, variables, segments=True) == other:
            return False
    if statement.principal is not None and not _is_principal(statement, request.principal):
        return False
    # Known conditions first: where one of them fails, the unknown ones do not matter.
    conditions = [c for c in statement.conditions if request.knows(c[1])]
    if not all(holds(c, request.context, statement.variables) for c in conditions):
        return False
    for _, key, _ in (c for c in statement.conditions if c not in conditions):
        raise _NotKnown(f"the value of the condition key {key}")
    return True


def _any(
    patterns: Iterable[str], text: str, context: Mapping, variables: bool, segments: bool = False
) -> bool:
    expressions = (
        expression(pattern, context, variables, segments=segments) for pattern in patterns
    )
    return any(regex.fullmatch(text) for regex in expressions if regex)


def _is_principal(statement: Statement, principal: Principal) -> bool:
    """Return whether the statement is about the principal."""
    principals, is_negated = statement.principal or ((), False)
    if {"*", "AWS:*"}.intersection(principals):
        return not is_negated
    kinds = ("AWS", "Service") if principal.account else ("Service",)
    own_names = [f"{kind}:{name}" for name in principal.names for kind in kinds]
    full_names = {_full(name) for name in principals}
    matches = [name for name in own_names if name in full_names]
    # NotPrincipal leaves out only whom it lists by every name: account, role and session.
    if is_negated:
        return len(matches) < len(principal.names)
    return bool(matches)


def _full(name: str) -> str:
    """Return an account's number as its ARN: both mean the account."""
    kind, _, value = name.partition(":")
    match = _ACCOUNT.fullmatch(value)
    return f"{kind}:arn:aws:iam::{match[1]}:root" if match else name


# Condition operators, as the IAM user guide has them ("Condition operators", "Multivalued context
# keys").

_FORM = re.compile(r"(?:(forallvalues|foranyvalue):)?(\w+?)(ifexists)?", re.IGNORECASE)
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "equals": operator.eq,
    "lessthan": operator.lt,
    "lessthanequals": operator.le,
    "greaterthan": operator.gt,
    "greaterthanequals": operator.ge,
}
Match = Callable[[str, str, Context, bool], bool]
"""(value in the request, value in the policy, context, whether variables count) → it matches."""


def holds(condition: tuple[str, str, tuple[str, ...]], context: Context, variables: bool) -> bool:
    """Return whether a statement's condition on one key is met.

    Raises:
        MalformedPolicy: IAM has no condition operator of that name.
    """
    operator_name, key, patterns = condition
    form = _FORM.fullmatch(operator_name)
    quantor, name, if_exists = form.groups() if form else (None, "", None)
    values = context.get(key, ())
    if name.lower() == "null":
        return any((value.lower() == "true") != (key in context) for value in patterns)
    plain = _NEGATIONS.get(name.lower(), name.lower())
    if plain not in _MATCHES:
        raise MalformedPolicy(
            f"there is no condition operator {operator_name} in IAM's policy language"
        )
    match, is_negated = _MATCHES[plain], plain != name.lower()
    # Of a key that the request lacks, only a negation holds, or an operator with IfExists.
    if not values and (if_exists or not quantor):
        return bool(if_exists) or is_negated

    def is_match(value: str) -> bool:
        return any(match(value, pattern, context, variables) for pattern in patterns) != is_negated

    # IAM lets ForAllValues match when the request has no value of the key, as ``all`` does.
    if quantor:
        return (all if quantor.lower() == "forallvalues" else any)(map(is_match, values))
    return (all if is_negated else any)(map(is_match, values))


def _text(wild: bool, fold: bool) -> Match:
    def match(value: str, pattern: str, context: Context, variables: bool) -> bool:
        regex = expression(pattern, context, variables, wild)
        flags = re.DOTALL | (re.IGNORECASE if fold else re.NOFLAG)
        return regex is not None and bool(re.fullmatch(regex.pattern, value, flags))

    return match


def _arn(value: str, arn_pattern: str, context: Context, variables: bool) -> bool:
    """Compare each of the six parts of an ARN for itself."""
    parts, patterns = value.split(":", 5), arn_pattern.split(":", 5)
    if arn_pattern == "*":
        return True
    if len(parts) != 6 or len(patterns) != 6:
        return False
    pairs = zip(parts, patterns, strict=True)
    return all(_text(True, False)(part, pattern, context, variables) for part, pattern in pairs)


def _bool(value: str, pattern: str, context: Context, variables: bool) -> bool:
    regex = expression(pattern.lower(), context, variables, wild=False)
    return regex is not None and bool(regex.fullmatch(value.lower()))


def _binary(value: str, pattern: str, context: Context, variables: bool) -> bool:
    return value == pattern


def _address(value: str, pattern: str, context: Context, variables: bool) -> bool:
    try:
        return ipaddress.ip_address(value) in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        # IAM, too, takes what is no address for another one.
        return False


def _make_comparison(read: Callable[[str], float], order: Callable[[float, float], bool]) -> Match:
    def match(value: str, pattern: str, context: Context, variables: bool) -> bool:
        try:
            return order(read(value), read(pattern))
        except ValueError:
            return False

    return match


def _moment(text: str) -> float:
    """Return a date, or seconds since the epoch, as seconds since the epoch."""
    if re.fullmatch(r"\d{5,}(\.\d+)?", text):
        return float(text)
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_MATCHES: dict[str, Match] = {
    "stringequals": _text(wild=False, fold=False),
    "stringequalsignorecase": _text(wild=False, fold=True),
    "stringlike": _text(wild=True, fold=False),
    "arnequals": _arn,
    "arnlike": _arn,
    "bool": _bool,
    "binaryequals": _binary,
    "ipaddress": _address,
    **{f"numeric{name}": _make_comparison(float, order) for name, order in _ORDER.items()},
    **{f"date{name}": _make_comparison(_moment, order) for name, order in _ORDER.items()},
}
_NEGATIONS = {"notipaddress": "ipaddress"} | {
    re.sub("^(string|arn|numeric|date)", r"\1not", name): name
    for name in _MATCHES
    if name.endswith(("equals", "like", "ignorecase"))
    and name.startswith(("string", "arn"))
    or name in ("numericequals", "dateequals")
}
"""Operator that asks for the opposite → the operator."""
