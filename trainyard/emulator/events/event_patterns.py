"""Event patterns: parse a pattern, and decide whether an event matches it.

As in aws/event-ruler, a pattern and an event are compared by flat paths (``detail.status``), and
the error messages are those of its parser. If an event has lists, a path has the values in each of
the lists' entries.
"""

import functools
import ipaddress
import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

from trainyard.emulator.request_scope import ApiError

Test = Callable[[list[Any]], bool]
"""Function that decides whether the values at a path of an event match. The list is empty if the
event does not have the path.
"""
Alternative = dict[str, list[Test]]
"""Path to its tests. An event matches if, for every path, at least one test holds."""
_COMPARE = {
    **{"<": operator.lt, "<=": operator.le, "=": operator.eq},
    **{">": operator.gt, ">=": operator.ge},
}
_TEXT = "{} match pattern must be a string"
_AFFIX = "prefix/suffix match pattern must be a string"
_COSTLY = re.compile(r"\*[^*]+\*[^*]+\*[^*]+\*")


class WrongPattern(ValueError):
    """EventBridge does not accept the pattern."""


@functools.lru_cache(256)
def parse_event_pattern(text: str) -> Callable[[Any], bool]:
    """Return a function that decides whether an event matches the pattern. Raises
    ``InvalidEventPatternException``.
    """
    try:
        pattern = json.loads(text)
        if not isinstance(pattern, dict):
            raise WrongPattern("Filter is not an object")
        alternatives = list(_iter_alternatives(pattern, ""))
    except json.JSONDecodeError:
        raise _make_pattern_error("Filter is not valid JSON") from None
    except WrongPattern as wrong:
        raise _make_pattern_error(str(wrong)) from None

    def matches(event: Any) -> bool:
        """Return whether the event matches one of the alternatives."""
        values: dict[str, list[Any]] = {}
        for path, value in _iter_leaves(event, ""):
            values.setdefault(path, []).append(value)
        return any(
            all(
                any(test(values.get(path, [])) for test in tests)
                for path, tests in alternative.items()
            )
            for alternative in alternatives
        )

    return matches


def _make_pattern_error(reason: str) -> ApiError:
    message = f"Event pattern is not valid. Reason: {reason}"
    return ApiError("InvalidEventPatternException", message)


def _iter_leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, value) of every scalar in the value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _iter_leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _iter_leaves(inner, path)
    else:
        yield path, value


def _iter_alternatives(pattern: dict[str, Any], path: str) -> Iterator[Alternative]:
    """Iterate over the alternatives of which an event must match one. There is one alternative,
    unless the pattern has ``$or``, which has one for each of its entries.
    """
    alternatives: list[Alternative] = [{}]
    for name, value in pattern.items():
        inner = f"{path}.{name}" if path else name
        # With fewer than two entries, $or is an ordinary member with that name.
        is_or = name == "$or" and isinstance(value, list) and len(value) > 1
        if is_or and all(isinstance(entry, dict) for entry in value):
            more = [
                alternative for entry in value for alternative in _iter_alternatives(entry, path)
            ]
        elif isinstance(value, dict):
            more = list(_iter_alternatives(value, inner))
        elif isinstance(value, list):
            more = [{inner: _make_tests(value)}]
        else:
            raise WrongPattern(f'"{name}" must be an object or an array')
        # If both have tests for a path, the tests are joined, because any of them may hold.
        alternatives = [
            {**base, **{p: base.get(p, []) + tests for p, tests in other.items()}}
            for base in alternatives
            for other in more
        ]
    yield from alternatives


def _make_tests(entries: list[Any]) -> list[Test]:
    if not entries:
        raise WrongPattern("Empty arrays are not allowed")
    return [
        _build_operand_filter(entry) if isinstance(entry, dict) else _make_equality_test(entry)
        for entry in entries
    ]


def _make_equality_test(operand: Any) -> Test:
    return _make_value_test(
        lambda value: get_json_type(value) == get_json_type(operand) and value == operand
    )


def get_json_type(value: Any) -> str:
    """Return the name of a value's JSON type. A bool is an int in Python, but not a number here."""
    kinds = {bool: "boolean", int: "number", float: "number", str: "string"}
    return kinds.get(type(value), "null")


def _make_value_test(predicate: Callable[[Any], bool]) -> Test:
    return lambda values: any(map(predicate, values))


def _make_text_test(predicate: Callable[[str], bool]) -> Test:
    return _make_value_test(lambda value: isinstance(value, str) and predicate(value))


def _build_operand_filter(entry: dict[str, Any]) -> Test:
    if len(entry) != 1:
        raise WrongPattern("Only one key allowed in match expression")
    ((name, operand),) = entry.items()
    if name not in _FILTERS:
        raise WrongPattern(f"Unrecognized match type {name}")
    return _FILTERS[name](operand)


def _make_affix_factory(name: str) -> Callable[[Any], Test]:
    """Return the function that makes the test of a ``prefix`` or ``suffix`` filter."""

    def make(operand: Any) -> Test:
        fold = isinstance(operand, dict) and set(operand) == {"equals-ignore-case"}
        text = operand["equals-ignore-case"] if fold else operand
        if not isinstance(text, str):
            raise WrongPattern(_TEXT.format(name))
        return _make_text_test(_make_affix_matcher(name, text, fold))

    return make


def _make_affix_matcher(name: str, text: str, fold: bool = False) -> Callable[[str], bool]:
    normalize: Callable[[str], str] = str.lower if fold else str
    part, has = normalize(text), str.startswith if name == "prefix" else str.endswith
    return lambda value: has(normalize(value), part)


def _make_ignore_case_test(operand: Any) -> Test:
    if not isinstance(operand, str):
        raise WrongPattern(_TEXT.format("equals-ignore-case"))
    return _make_text_test(lambda value: value.lower() == operand.lower())


def _make_exists_test(operand: Any) -> Test:
    if not isinstance(operand, bool):
        raise WrongPattern("exists match pattern must be either true or false.")
    return lambda values: bool(values) is operand


def _make_wildcard_test(operand: Any) -> Test:
    if not isinstance(operand, str):
        raise WrongPattern(_TEXT.format("wildcard"))
    if "**" in operand:
        raise WrongPattern(f"Consecutive wildcard characters at pos {operand.index('**') + 1}")
    if _COSTLY.search(operand):
        raise WrongPattern(
            "Rule is too complex - try using fewer wildcard characters or fewer repeating "
            "character sequences after a wildcard character"
        )
    return _make_text_test(_compile_wildcard(operand))


def _compile_wildcard(operand: str) -> Callable[[str], bool]:
    """Return the predicate for a wildcard pattern."""
    parts = re.findall(r"\\(.)|(\*)|([^*\\]+)", operand, re.DOTALL)
    text = "".join(".*" if star else re.escape(escape or plain) for escape, star, plain in parts)
    return lambda value: re.fullmatch(text, value, re.DOTALL) is not None


def _make_numeric_test(operand: Any) -> Test:
    if not isinstance(operand, list):
        raise WrongPattern("Value of numeric must be an array.")
    remaining, comparisons = list(operand), []
    while remaining:
        sign, *remaining = remaining
        # A second comparison must close the range that the first one opens.
        first = comparisons[0][0] if comparisons else ""
        if sign not in _COMPARE or (first and (first[0] != ">" or sign[0] != "<")):
            raise WrongPattern(f"Bad numeric range operator: {sign}")
        if not remaining or get_json_type(remaining[0]) != "number":
            raise WrongPattern(f"Value of {sign} must be numeric")
        comparisons.append((sign, remaining.pop(0)))
    if not comparisons:
        raise WrongPattern("Invalid member in numeric match: ]")
    hold = [(_COMPARE[sign], number) for sign, number in comparisons]
    return _make_value_test(
        lambda value: get_json_type(value) == "number" and all(test(value, n) for test, n in hold)
    )


def _make_cidr_test(operand: Any) -> Test:
    if not isinstance(operand, str):
        raise WrongPattern(_TEXT.format("prefix"))
    address, slash, bits = operand.partition("/")
    if not slash:
        raise WrongPattern("Malformed CIDR, one '/' required")
    if not bits.isdigit():
        raise WrongPattern("Malformed CIDR, mask bits must be an integer")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise WrongPattern(f"Nonstandard IP address: {address}") from None
    try:
        network = ipaddress.ip_network(operand, strict=False)
    except ValueError:
        raise WrongPattern("Malformed CIDR, mask bits are not of this address") from None
    return _make_text_test(lambda value: _is_in_network(value, network))


def _is_in_network(value: str, network: Any) -> bool:
    try:
        return ipaddress.ip_address(value) in network
    except ValueError:
        return False


def _make_anything_but_test(operand: Any) -> Test:
    is_excluded = _make_exclusion(operand)
    return lambda values: any(not is_excluded(value) for value in values)


def _make_exclusion(operand: Any) -> Callable[[Any], bool]:
    """Return the predicate for the values that an anything-but filter excludes. Raises
    WrongPattern.
    """
    if not isinstance(operand, dict):
        values = operand if isinstance(operand, list) else [operand]
        if any(get_json_type(element) not in ("string", "number") for element in values):
            raise WrongPattern(_NO_LIST if isinstance(operand, list) else _NO_VALUE)
        return lambda value: any(
            get_json_type(value) == get_json_type(k) and value == k for k in values
        )
    if len(operand) != 1 or not set(operand) <= {*_BUT_TEXTS}:
        raise WrongPattern(_NO_VALUE)
    ((name, entry),) = operand.items()
    texts = entry if isinstance(entry, list) else [entry]
    if any(isinstance(text, dict) for text in texts):
        raise WrongPattern(_NO_VALUE)
    if any(not isinstance(text, str) for text in texts):
        raise WrongPattern(_BUT_TEXTS[name])
    if name in ("prefix", "suffix") and "" in texts:
        raise WrongPattern("Null prefix/suffix not allowed")
    tests = [_PREDICATES[name](text) for text in texts]
    return lambda value: isinstance(value, str) and any(test(value) for test in tests)


_NO_LIST = "Inside anything but list, start|null|boolean is not supported."
_NO_VALUE = "Value of anything-but must be an array or single string/number value."
_BUT_TEXTS = {
    "prefix": _AFFIX,
    "suffix": _AFFIX,
    "equals-ignore-case": (
        "Inside anything-but/equals-ignore-case list, number|start|null|boolean is not supported."
    ),
    "wildcard": _TEXT.format("wildcard"),
}
_PREDICATES: dict[str, Callable[[str], Callable[[str], bool]]] = {
    "prefix": lambda text: _make_affix_matcher("prefix", text),
    "suffix": lambda text: _make_affix_matcher("suffix", text),
    "equals-ignore-case": lambda text: lambda value: value.lower() == text.lower(),
    "wildcard": _compile_wildcard,
}
_FILTERS: dict[str, Callable[[Any], Test]] = {
    "prefix": _make_affix_factory("prefix"),
    "suffix": _make_affix_factory("suffix"),
    "equals-ignore-case": _make_ignore_case_test,
    "anything-but": _make_anything_but_test,
    "numeric": _make_numeric_test,
    "cidr": _make_cidr_test,
    "exists": _make_exists_test,
    "wildcard": _make_wildcard_test,
}
