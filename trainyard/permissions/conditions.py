"""Condition operators, as the IAM user guide has them ("Condition operators", "Multivalued context
keys").
"""

import ipaddress
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from trainyard.permissions.policy_documents import (
    Context,
    MalformedPolicy,
    expression,
)

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
    match, is_negated = _operator(name.lower(), operator_name)
    if not values and (if_exists or not quantor):
        return bool(if_exists) or is_negated

    def is_match(value: str) -> bool:
        return any(match(value, pattern, context, variables) for pattern in patterns) != is_negated

    if quantor:
        return (all if quantor.lower() == "forallvalues" else any)(map(is_match, values))
    return (all if is_negated else any)(map(is_match, values))


def _operator(name: str, operator_name: str) -> tuple[Match, bool]:
    """Return (match, whether the operator asks for the opposite)."""
    plain = _NEGATIONS.get(name, name)
    if plain not in _MATCHES:
        raise MalformedPolicy(
            f"there is no condition operator {operator_name} in IAM's policy language"
        )
    return _MATCHES[plain], plain != name


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
    except ValueError:  # IAM, too, takes what is no address for another one
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
