"""Parse policy documents: their statements, patterns and policy variables.

The grammar is that of the IAM user guide, "Grammar of the IAM JSON policy language"; variables are
those of "IAM policy elements: Variables and tags".
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from trainyard.common.errors import EmulatorError

Context = Mapping[str, tuple[str, ...]]
"""Mapping of a condition key, in lower case, to its values in a request."""
Clause = Literal["Action", "Resource", "Principal"]
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_DEFAULT = re.compile(r"\s*([^,]+?)\s*(?:,\s*'([^']*)'\s*)?")
_WITH_VARIABLES = "2012-10-17"
_MEMBERS = {
    *("Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource"),
    *("NotResource", "Condition"),
}


class MalformedPolicy(EmulatorError):
    """A document is not a policy, or has an element or operator that IAM does not have."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a policy.

    ``action``, ``resource`` and ``principal`` are (values, whether it is the Not… form), or None if
    the statement has no such element.
    """

    sid: str
    allows: bool
    action: tuple[tuple[str, ...], bool]
    resource: tuple[tuple[str, ...], bool] | None
    principal: tuple[tuple[str, ...], bool] | None
    """Its values are like ``AWS:arn…`` and ``Service:…``; ``*`` alone means everyone."""

    conditions: tuple[tuple[str, str, tuple[str, ...]], ...]
    """(operator, key in lower case, values)."""

    variables: bool
    """True if its texts may contain policy variables: the policy has version 2012-10-17."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy with its name, which is the name of an inline policy or the ARN of a managed one."""

    name: str
    statements: tuple[Statement, ...]


def parse_policy(name: str, document: str | Mapping[str, Any]) -> Policy:
    """Parse a policy document, given as JSON text or as parsed JSON.

    Raises:
        MalformedPolicy: it is not a policy document; the message says what is wrong.
    """
    # Pass text, because the cache of the called function needs hashable arguments.
    return _parse_policy_text(name, document if isinstance(document, str) else json.dumps(document))


def read_control_policies(file: Path | None) -> tuple[Policy, ...]:
    """Read service control policies from a file with one policy, or with a JSON list of them.

    A list is evaluated as the policies that are attached at one level of the organization. Return
    an empty tuple without a file.

    Raises:
        MalformedPolicy: the file cannot be read, or contains anything else.
    """
    if file is None:
        return ()
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MalformedPolicy(f"--scp {file}: cannot be read: {error}") from None
    several = content if isinstance(content, list) else [content]
    return tuple(parse_policy(f"{file.name}[{n}]", document) for n, document in enumerate(several))


@lru_cache(maxsize=256)
def _parse_policy_text(name: str, text: str) -> Policy:
    """Parse a policy's JSON text; cached, because the same policies decide on many requests."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise MalformedPolicy(f"policy {name}: is not JSON: {error}") from None
    statements = document.get("Statement") if isinstance(document, dict) else None
    entries = statements if isinstance(statements, list) else [statements]
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise MalformedPolicy(f"policy {name}: has no Statement")
    variables = document.get("Version") == _WITH_VARIABLES
    return Policy(
        name, tuple(_parse_statement(name, n, e, variables) for n, e in enumerate(entries, 1))
    )


def _parse_statement(policy: str, number: int, entry: dict[str, Any], variables: bool) -> Statement:
    """Parse a statement; ``variables`` says whether its texts may contain policy variables."""
    sid = entry.get("Sid") or f"number {number}"
    location = f"policy {policy}, statement {sid}"
    if entry.get("Effect") not in ("Allow", "Deny"):
        raise MalformedPolicy(f"{location}: Effect must be Allow or Deny")
    if unknown := entry.keys() - _MEMBERS:
        raise MalformedPolicy(
            f"{location}: there is no element {sorted(unknown)[0]} in a statement"
        )
    action = _parse_element(entry, "Action", location)
    if action is None:
        raise MalformedPolicy(f"{location}: has no Action")
    return Statement(
        sid=sid,
        allows=entry["Effect"] == "Allow",
        action=action,
        resource=_parse_element(entry, "Resource", location),
        principal=_parse_element(entry, "Principal", location),
        conditions=_parse_conditions(entry.get("Condition") or {}, location),
        variables=variables,
    )


def _parse_element(
    entry: dict[str, Any], name: Clause, location: str
) -> tuple[tuple[str, ...], bool] | None:
    """Return (values, whether it is the Not… form) of an element; None if it is missing."""
    members = [(member, n) for n, member in enumerate((name, f"Not{name}")) if member in entry]
    if len(members) > 1:
        raise MalformedPolicy(f"{location}: has both {name} and Not{name}")
    for member, is_negated in members:
        value = entry[member]
        if name == "Principal" and isinstance(value, dict):
            values = [
                f"{kind}:{text}" for kind, ones in value.items() for text in _list_texts(ones)
            ]
            return tuple(values), bool(is_negated)
        return _list_texts(value), bool(is_negated)
    return None


def _parse_conditions(
    condition: dict[str, dict[str, Any]], location: str
) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Parse a statement's Condition into (operator, key in lower case, values)."""
    if not all(isinstance(keys, dict) for keys in condition.values()):
        raise MalformedPolicy(f"{location}: Condition must be operator → key → values")
    return tuple(
        (operator, key.lower(), _list_texts(values))
        for operator, keys in condition.items()
        for key, values in keys.items()
    )


def _list_texts(value: Any) -> tuple[str, ...]:
    """Return one value, or a list of them, as strings; booleans are in lower case as in JSON."""
    values = value if isinstance(value, list) else [value]
    return tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in values)


def compile_pattern(
    text: str, context: Context, variables: bool, wild: bool = True, segments: bool = False
) -> re.Pattern[str] | None:
    """Return a regular expression that matches what a text in a policy matches.

    Return None if the text has a variable that the request does not have.

    Args:
        text: text in a policy.
        context: values of the request's condition keys, which variables refer to.
        variables: whether the text may contain variables.
        wild: whether ``*`` and ``?`` are wildcards. In the value of a variable they never are.
        segments: whether wildcards match only within a segment of an ARN, which is the part between
            two colons. A ``*`` at the end of a segment may match more than the segment ("IAM JSON
            policy elements: Resource").
    """
    parts, end = [], 0
    for match in _VARIABLE.finditer(text) if variables else ():
        value = _find_variable(match[1], context)
        if value is None:
            return None
        parts += [_translate_pattern(text[end : match.start()], wild, segments), re.escape(value)]
        end = match.end()
    return _compile_pattern(
        "".join([*parts, _translate_pattern(text[end:], wild, segments, is_last=True)])
    )


def _find_variable(name: str, context: Context) -> str | None:
    """Return the value of the variable ``name`` (which may include a default); None if there is
    none. The variables ``*``, ``?`` and ``$`` are these characters.
    """
    if name in ("*", "?", "$"):
        return name
    match = _DEFAULT.fullmatch(name)
    values = context.get(match[1].lower(), ()) if match else ()
    return values[0] if len(values) == 1 else match[2] if match else None


def _translate_pattern(text: str, wild: bool, segments: bool, is_last: bool = False) -> str:
    """Return the regular expression for a part of an IAM pattern.

    Args:
        wild: whether ``*`` and ``?`` are wildcards.
        segments: whether they match within one segment of an ARN only; a ``*`` that is a whole
            rest of a segment matches across colons.
        is_last: whether the part is the end of the pattern.
    """
    pattern = re.escape(text)
    if not wild:
        return pattern
    if not segments:
        return pattern.replace(r"\*", ".*").replace(r"\?", ".")
    end_of_segment = r"\\\*(?=:|$)" if is_last else r"\\\*(?=:)"
    return re.sub(end_of_segment, ".*", pattern).replace(r"\*", "[^:]*").replace(r"\?", "[^:]")


@lru_cache(maxsize=4096)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)
