"""Decide whether policies allow a request: IAM user guide, "Policy evaluation logic" and its page
on requests across accounts.

An explicit Deny in any policy decides first. Then service control policies, the resource's policy,
identity policies, the permissions boundary and session policies must allow the request, in this
order. Within an account the resource's policy may be enough; :func:`_find_grant` says for whom.
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
    compile_pattern,
)

Kind = Literal[
    "service control policy",
    "resource-based policy",
    "identity-based policy",
    "permissions boundary",
    "session policy",
    "role trust policy",
]
"""Type of a policy, in the words of AWS's messages."""
Grant = Literal["direct", "role", "account", ""]
"""To whom a resource's policy gives access: directly to the session or user that makes the request,
to the session's role, to the account, or (empty) to none of these."""
_ACCOUNT = re.compile(r"(?:arn:[\w-]+:iam::)?(\d{12})(?::root)?")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a request: a user, a session of a role, or a service."""

    arn: str
    """ARN of the user or session, or the name of the service."""

    role: str = ""
    """ARN of the session's role; empty for a user or service."""

    @property
    def account(self) -> str:
        """Account number from the principal's ARN; empty for a service."""
        return self.arn.split(":")[4] if self.arn.startswith("arn:") else ""

    @property
    def names(self) -> tuple[str, ...]:
        """ARNs by which a policy may name the principal: its account's, its role's and its own."""
        account_names = [f"arn:aws:iam::{self.account}:root"] if self.account else []
        return tuple(name for name in (*account_names, self.role, self.arn) if name)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one action on one resource."""

    principal: Principal
    action: str
    resource: str
    context: Context = field(default_factory=dict)
    known_keys: frozenset[str] | None = None
    """Condition keys, in lower case, for which it is known whether the request has them; None if
    that is known for all. A name that ends with ``/`` means all keys with that prefix."""

    owner: str = ""
    """Account of the resource; empty if it is that of the principal."""

    def is_key_known(self, key: str) -> bool:
        """Return whether the request's value for the condition key, or its absence, is known."""
        if self.known_keys is None or key in self.context or key in self.known_keys:
            return True
        return f"{key.partition('/')[0]}/" in self.known_keys


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies that decide on a request."""

    identity: tuple[Policy, ...] = ()
    boundary: Policy | None = None
    session: tuple[Policy, ...] = ()
    """Policies that were given to AssumeRole, if any."""

    control: tuple[Policy, ...] = ()
    """Service control policies of the principal's account, if it is in an organization."""

    resource: Policy | None = None
    needs_resource_allow: bool = False
    """True if the resource's policy must allow the request, as that of a KMS key or a role must."""

    def iter_kinds(self) -> Iterator[tuple[Kind, tuple[Policy, ...]]]:
        """Iterate over (policy type, policies) in the order in which the types are evaluated."""
        yield "service control policy", self.control
        trust: Kind = "role trust policy" if self._is_trust else "resource-based policy"
        yield trust, (self.resource,) if self.resource else ()
        yield "identity-based policy", self.identity
        yield "permissions boundary", (self.boundary,) if self.boundary else ()
        yield "session policy", self.session

    @property
    def _is_trust(self) -> bool:
        """True if ``resource`` is a role's trust policy: no statement has the element Resource."""
        return self.resource is not None and all(
            statement.resource is None for statement in self.resource.statements
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request is allowed, and if not, because of which policy."""

    request: Request
    is_allowed: bool
    kind: Kind = "identity-based policy"
    """Type of the policy that denies the request, or should allow it and does not."""

    policy: str = ""
    """Name of the policy with the Deny, or with the statement that could not be evaluated."""

    sid: str = ""
    """Sid of that statement."""

    unknown: str = ""
    """Condition key or operator of the statement that cannot be evaluated here; else empty."""

    @property
    def message(self) -> str:
        """AWS's message about a denied request (IAM user guide, "Troubleshoot access denied error
        messages"), with the statement that denies it.
        """
        principal, action = self.request.principal.arn, self.request.action
        quote = '"' if action.startswith("s3:") else ""
        on = f" on resource: {quote}{self.request.resource}{quote}"
        return f"User: {principal} is not authorized to perform: {action}{on} {self._reason}"

    @property
    def _reason(self) -> str:
        """Second half of AWS's message: which policy denies the request, or does not allow it."""
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


class _UnknownConditionKey(Exception):
    """It is not known whether a statement matches, because a condition key's value is not known."""


def evaluate_request(request: Request, policies: Policies) -> Decision:
    """Decide whether the policies allow a request.

    If the decision depends on a statement that cannot be evaluated, the request is not allowed, and
    the decision's ``unknown`` says why.
    """
    denials = [*_iter_denials(request, policies)]
    # A Deny that certainly applies is reported rather than one that may apply.
    for denial in sorted(denials, key=lambda decision: bool(decision.unknown)):
        return denial
    doubts: dict[Kind, Decision] = {}
    lacks = _find_kind_without_allow(request, policies, doubts)
    if lacks is None:
        return Decision(request, True)
    return doubts.get(lacks) or Decision(request, False, lacks)


def _iter_denials(request: Request, policies: Policies) -> Iterator[Decision]:
    """Iterate over a decision for each Deny statement that applies, or may apply."""
    for kind, some in policies.iter_kinds():
        for policy, statement in ((p, s) for p in some for s in p.statements if not s.allows):
            denial = Decision(request, False, kind, policy.name, statement.sid)
            try:
                if _is_applicable(statement, request):
                    yield denial
            except (_UnknownConditionKey, MalformedPolicy) as error:
                yield replace(denial, unknown=str(error))


def _find_kind_without_allow(
    request: Request, policies: Policies, doubts: dict[Kind, Decision]
) -> Kind | None:
    """Return the first type of policy that must allow the request and does not; None if all do.

    Add to ``doubts`` the statements that cannot be evaluated, by the type of their policy.
    """
    by_kind = dict(policies.iter_kinds())

    def has_allow(kind: Kind) -> bool:
        """Return whether a statement of this type of policy certainly allows the request."""
        return any(
            statement.allows and _is_surely_applicable(policy, statement, request, kind, doubts)
            for policy in by_kind[kind]
            for statement in policy.statements
        )

    if policies.control and not has_allow("service control policy"):
        return "service control policy"
    kind: Kind = "role trust policy" if "role trust policy" in by_kind else "resource-based policy"
    grant = _find_grant(request, policies.resource, kind, doubts)
    across = bool(request.owner) and request.owner != request.principal.account
    if not grant and (across or policies.needs_resource_allow):
        return kind
    # Within an account, access that is given directly to the session or user needs nothing else.
    if not across and grant == "direct":
        return None
    # Access that is given to the role replaces an Allow of its identity policies, but boundary and
    # session policies still limit it.
    is_needed = grant != "role" or across
    if is_needed and not has_allow("identity-based policy"):
        return "identity-based policy"
    if policies.boundary and not has_allow("permissions boundary"):
        return "permissions boundary"
    if policies.session and not has_allow("session policy"):
        return "session policy"
    return None


def _is_surely_applicable(
    policy: Policy | None,
    statement: Statement,
    request: Request,
    kind: Kind,
    doubts: dict[Kind, Decision],
) -> bool:
    """Return whether an Allow statement certainly applies to the request.

    If it cannot be evaluated, add it to ``doubts`` and return False.
    """
    try:
        return _is_applicable(statement, request)
    except (_UnknownConditionKey, MalformedPolicy) as error:
        denial = Decision(request, False, kind, policy.name if policy else "", statement.sid)
        doubts.setdefault(kind, replace(denial, unknown=str(error)))
        return False


def _find_grant(
    request: Request, policy: Policy | None, kind: Kind, doubts: dict[Kind, Decision]
) -> Grant:
    """Return to whom the resource's policy gives access, or an empty string if it does not allow
    the request.

    "direct": to the session or user itself, to everyone, or to the service; other policies need not
    allow the request. "role": to the session's role; boundary and session policies still limit it.
    "account": to the account; identity policies decide.
    """
    grants: set[Grant] = set()
    for statement in policy.statements if policy else ():
        if statement.allows and _is_surely_applicable(policy, statement, request, kind, doubts):
            grants.add(_classify_grant(statement, request.principal))
    order: tuple[Grant, ...] = ("direct", "role", "account")
    return next((grant for grant in order if grant in grants), "")


def _classify_grant(statement: Statement, principal: Principal) -> Grant:
    """Return to whom an Allow statement of a resource's policy gives access."""
    principals, is_negated = statement.principal or ((), False)
    if is_negated:
        return "direct"
    wildcards = {"*", "AWS:*", f"AWS:{principal.arn}", f"Service:{principal.arn}"}
    if wildcards.intersection(principals):
        return "direct"
    return "role" if f"AWS:{principal.role}" in principals else "account"


def _is_applicable(statement: Statement, request: Request) -> bool:
    """Return whether all elements of the statement match the request.

    Raises:
        _UnknownConditionKey: everything else matches, and the value of a condition's key is not
        known. MalformedPolicy: everything else matches, and IAM does not have a condition's
        operator.
    """
    actions, other = statement.action
    lower = (action.lower() for action in actions)
    if _has_match(lower, request.action.lower(), {}, variables=False) == other:
        return False
    if statement.resource is not None:
        resources, other = statement.resource
        context, variables = request.context, statement.variables
        if _has_match(resources, request.resource, context, variables, segments=True) == other:
            return False
    if statement.principal is not None and not _is_principal(statement, request.principal):
        return False
    # Check the known conditions first: if one of them fails, the unknown ones do not matter.
    conditions = [c for c in statement.conditions if request.is_key_known(c[1])]
    if not all(is_condition_met(c, request.context, statement.variables) for c in conditions):
        return False
    for _, key, _ in (c for c in statement.conditions if c not in conditions):
        raise _UnknownConditionKey(f"the value of the condition key {key}")
    return True


def _has_match(
    patterns: Iterable[str], text: str, context: Mapping, variables: bool, segments: bool = False
) -> bool:
    """Return whether one of the patterns matches the text; see ``compile_pattern``."""
    expressions = (
        compile_pattern(pattern, context, variables, segments=segments) for pattern in patterns
    )
    return any(regex.fullmatch(text) for regex in expressions if regex)


def _is_principal(statement: Statement, principal: Principal) -> bool:
    """Return whether the statement's Principal or NotPrincipal element matches the principal."""
    principals, is_negated = statement.principal or ((), False)
    if {"*", "AWS:*"}.intersection(principals):
        return not is_negated
    kinds = ("AWS", "Service") if principal.account else ("Service",)
    own_names = [f"{kind}:{name}" for name in principal.names for kind in kinds]
    full_names = {_expand_principal(name) for name in principals}
    matches = [name for name in own_names if name in full_names]
    # NotPrincipal excludes a principal only if it lists all its names: account, role and session.
    if is_negated:
        return len(matches) < len(principal.names)
    return bool(matches)


def _expand_principal(name: str) -> str:
    """Return a principal's name; an account's number is replaced by the account's ARN."""
    kind, _, value = name.partition(":")
    match = _ACCOUNT.fullmatch(value)
    return f"{kind}:arn:aws:iam::{match[1]}:root" if match else name


# Evaluate condition operators (IAM user guide, "Condition operators", "Multivalued context keys").

_FORM = re.compile(r"(?:(forallvalues|foranyvalue):)?(\w+?)(ifexists)?", re.IGNORECASE)
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "equals": operator.eq,
    "lessthan": operator.lt,
    "lessthanequals": operator.le,
    "greaterthan": operator.gt,
    "greaterthanequals": operator.ge,
}
Match = Callable[[str, str, Context, bool], bool]
"""Function of (value in the request, value in the policy, context, whether variables are replaced)
that returns whether the values match."""


def is_condition_met(
    condition: tuple[str, str, tuple[str, ...]], context: Context, variables: bool
) -> bool:
    """Return whether a statement's condition on one key is met.

    Args:
        condition: (operator, condition key, values in the policy).
        context: values of the request's condition keys.
        variables: whether variables in the policy's values are replaced.

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
    # If the request does not have the key, only a negation or an operator with IfExists is met.
    if not values and (if_exists or not quantor):
        return bool(if_exists) or is_negated

    def is_match(value: str) -> bool:
        return any(match(value, pattern, context, variables) for pattern in patterns) != is_negated

    # In IAM, ForAllValues is met if the request has no value for the key, as ``all`` is.
    if quantor:
        return (all if quantor.lower() == "forallvalues" else any)(map(is_match, values))
    return (all if is_negated else any)(map(is_match, values))


def _make_text_matcher(wild: bool, fold: bool) -> Match:
    """Return a function that compares texts; ``wild`` allows wildcards, ``fold`` ignores case."""

    def match(value: str, pattern: str, context: Context, variables: bool) -> bool:
        regex = compile_pattern(pattern, context, variables, wild)
        flags = re.DOTALL | (re.IGNORECASE if fold else re.NOFLAG)
        return regex is not None and bool(re.fullmatch(regex.pattern, value, flags))

    return match


def _match_arn(value: str, arn_pattern: str, context: Context, variables: bool) -> bool:
    """Return whether two ARNs match part by part; each of the six parts may have wildcards."""
    parts, patterns = value.split(":", 5), arn_pattern.split(":", 5)
    if arn_pattern == "*":
        return True
    if len(parts) != 6 or len(patterns) != 6:
        return False
    pairs = zip(parts, patterns, strict=True)
    return all(
        _make_text_matcher(True, False)(part, pattern, context, variables)
        for part, pattern in pairs
    )


def _match_bool(value: str, pattern: str, context: Context, variables: bool) -> bool:
    """Return whether two booleans, written as text in any case, are equal."""
    regex = compile_pattern(pattern.lower(), context, variables, wild=False)
    return regex is not None and bool(regex.fullmatch(value.lower()))


def _match_binary(value: str, pattern: str, context: Context, variables: bool) -> bool:
    """Return whether two base64 strings are identical."""
    return value == pattern


def _match_address(value: str, pattern: str, context: Context, variables: bool) -> bool:
    """Return whether the IP address ``value`` is in the network ``pattern``, such as 10.0.0.0/8."""
    try:
        return ipaddress.ip_address(value) in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        # In IAM as well, a text that is not an address does not match.
        return False


def _make_comparison(read: Callable[[str], float], order: Callable[[float, float], bool]) -> Match:
    """Return a function that parses two values by ``read`` and compares them by ``order``.

    The function returns False if a value cannot be parsed.
    """

    def match(value: str, pattern: str, context: Context, variables: bool) -> bool:
        try:
            return order(read(value), read(pattern))
        except ValueError:
            return False

    return match


def _parse_time(text: str) -> float:
    """Parse a date or a number of seconds since the epoch; return seconds since the epoch."""
    if re.fullmatch(r"\d{5,}(\.\d+)?", text):
        return float(text)
    parsed_time = datetime.fromisoformat(text)
    return (parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)).timestamp()


_MATCHES: dict[str, Match] = {
    "stringequals": _make_text_matcher(wild=False, fold=False),
    "stringequalsignorecase": _make_text_matcher(wild=False, fold=True),
    "stringlike": _make_text_matcher(wild=True, fold=False),
    "arnequals": _match_arn,
    "arnlike": _match_arn,
    "bool": _match_bool,
    "binaryequals": _match_binary,
    "ipaddress": _match_address,
    **{f"numeric{name}": _make_comparison(float, order) for name, order in _ORDER.items()},
    **{f"date{name}": _make_comparison(_parse_time, order) for name, order in _ORDER.items()},
}
_NEGATIONS = {"notipaddress": "ipaddress"} | {
    re.sub("^(string|arn|numeric|date)", r"\1not", name): name
    for name in _MATCHES
    if name.endswith(("equals", "like", "ignorecase"))
    and name.startswith(("string", "arn"))
    or name in ("numericequals", "dateequals")
}
"""Mapping of a negated operator to the operator that it negates."""
