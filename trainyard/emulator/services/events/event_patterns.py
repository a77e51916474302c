"""Event patterns: what one may say, and whether an event matches it.

As aws/event-ruler does, a pattern and an event are compared by flat paths (``detail.status``), and
the messages are its parser's. An event's path has all values below it, of each entry of a list.
"""

import functools
import ipaddress
import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

from trainyard.emulator.api import ApiError

Test = Callable[[list[Any]], bool]
"""Whether one of the values at a path is meant; a path that the event lacks has none."""
Alternative = dict[str, list[Test]]
"""Path -> its tests, of which one must hold; every path's must."""
_COMPARE = {
    **{"<": operator.lt, "<=": operator.le, "=": operator.eq},
    **{">": operator.gt, ">=": operator.ge},
}
_TEXT = "{} match pattern must be a string"
_AFFIX = "prefix/suffix match pattern must be a string"
_COSTLY = re.compile(r"\*[^*]+\*[^*]+\*[^*]+\*")


class WrongPattern(ValueError):
    """The pattern says what EventBridge does not take."""


@functools.lru_cache(256)
def parse(text: str) -> Callable[[Any], bool]:
    """Return whether an event matches. Raises ``InvalidEventPatternException``."""
    try:
        pattern = json.loads(text)
        if not isinstance(pattern, dict):
            raise WrongPattern("Filter is not an object")
        alternatives = list(_alternatives(pattern, ""))
    except json.JSONDecodeError:
        raise _invalid("Filter is not valid JSON") from None
    except WrongPattern as wrong:
        raise _invalid(str(wrong)) from None

    def matches(event: Any) -> bool:
        values: dict[str, list[Any]] = {}
        for path, value in _leaves(event, ""):
            values.setdefault(path, []).append(value)
        return any(
            all(any(test(values.get(path, [])) for test in tests) for path, tests in each.items())
            for each in alternatives
        )

    return matches


def _invalid(reason: str) -> ApiError:
    message = f"Event pattern is not valid. Reason: {reason}"
    return ApiError("InvalidEventPatternException", message)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, path)
    else:
        yield path, value


def _alternatives(pattern: dict[str, Any], path: str) -> Iterator[Alternative]:
    """Iterate over what the event may be: one alternative, but for each entry of an ``$or``."""
    found: list[Alternative] = [{}]
    for name, value in pattern.items():
        inner = f"{path}.{name}" if path else name
        if name == "$or" and _is_or(value):
            more = [each for entry in value for each in _alternatives(entry, path)]
        elif isinstance(value, dict):
            more = list(_alternatives(value, inner))
        elif isinstance(value, list):
            more = [{inner: _tests(value)}]
        else:
            raise WrongPattern(f'"{name}" must be an object or an array')
        found = [_both(one, other) for one in found for other in more]
    yield from found


def _both(one: Alternative, other: Alternative) -> Alternative:
    return {**one, **{path: one.get(path, []) + tests for path, tests in other.items()}}


def _is_or(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(v, dict) for v in value)


def _tests(entries: list[Any]) -> list[Test]:
    if not entries:
        raise WrongPattern("Empty arrays are not allowed")
    return [_filter(entry) if isinstance(entry, dict) else _equal(entry) for entry in entries]


def _equal(wanted: Any) -> Test:
    return _of_one(lambda value: type_of(value) == type_of(wanted) and value == wanted)


def type_of(value: Any) -> str:
    """Return the name of a value's JSON type; in Python, a boolean would pass for a number."""
    kinds = {bool: "boolean", int: "number", float: "number", str: "string"}
    return kinds.get(type(value), "null")


def _of_one(meant: Callable[[Any], bool]) -> Test:
    return lambda values: any(map(meant, values))


def _of_text(meant: Callable[[str], bool]) -> Test:
    return _of_one(lambda value: isinstance(value, str) and meant(value))


def _filter(entry: dict[str, Any]) -> Test:
    if len(entry) != 1:
        raise WrongPattern("Only one key allowed in match expression")
    ((name, wanted),) = entry.items()
    if name not in _FILTERS:
        raise WrongPattern(f"Unrecognized match type {name}")
    return _FILTERS[name](wanted)


def _affix(name: str) -> Callable[[Any], Test]:
    def make(wanted: Any) -> Test:
        fold = isinstance(wanted, dict) and set(wanted) == {"equals-ignore-case"}
        text = wanted["equals-ignore-case"] if fold else wanted
        if not isinstance(text, str):
            raise WrongPattern(_TEXT.format(name))
        return _of_text(_affixed(name, text, fold))

    return make


def _affixed(name: str, text: str, fold: bool = False) -> Callable[[str], bool]:
    as_meant: Callable[[str], str] = str.lower if fold else str
    part, has = as_meant(text), str.startswith if name == "prefix" else str.endswith
    return lambda value: has(as_meant(value), part)


def _same_letters(wanted: Any) -> Test:
    if not isinstance(wanted, str):
        raise WrongPattern(_TEXT.format("equals-ignore-case"))
    return _of_text(lambda value: value.lower() == wanted.lower())


def _exists(wanted: Any) -> Test:
    if not isinstance(wanted, bool):
        raise WrongPattern("exists match pattern must be either true or false.")
    return lambda values: bool(values) is wanted


def _wildcard(wanted: Any) -> Test:
    if not isinstance(wanted, str):
        raise WrongPattern(_TEXT.format("wildcard"))
    if "**" in wanted:
        raise WrongPattern(f"Consecutive wildcard characters at pos {wanted.index('**') + 1}")
    if _COSTLY.search(wanted):
        raise WrongPattern(
            "Rule is too complex - try using fewer wildcard characters or fewer repeating "
            "character sequences after a wildcard character"
        )
    return _of_text(_like(wanted))


def _like(wanted: str) -> Callable[[str], bool]:
    parts = re.findall(r"\\(.)|(\*)|([^*\\]+)", wanted, re.DOTALL)
    text = "".join(".*" if star else re.escape(escaped or plain) for escaped, star, plain in parts)
    return lambda value: re.fullmatch(text, value, re.DOTALL) is not None


def _numeric(wanted: Any) -> Test:
    if not isinstance(wanted, list):
        raise WrongPattern("Value of numeric must be an array.")
    rest, compared = list(wanted), []
    while rest:
        sign, *rest = rest
        if sign not in _COMPARE or (compared and not _is_range(compared[0][0], sign)):
            raise WrongPattern(f"Bad numeric range operator: {sign}")
        if not rest or type_of(rest[0]) != "number":
            raise WrongPattern(f"Value of {sign} must be numeric")
        compared.append((sign, rest.pop(0)))
    if not compared:
        raise WrongPattern("Invalid member in numeric match: ]")
    hold = [(_COMPARE[sign], number) for sign, number in compared]
    return _of_one(
        lambda value: type_of(value) == "number" and all(test(value, n) for test, n in hold)
    )


def _is_range(first: str, second: str) -> bool:
    return first[0] == ">" and second[0] == "<"


def _cidr(wanted: Any) -> Test:
    if not isinstance(wanted, str):
        raise WrongPattern(_TEXT.format("prefix"))
    address, slash, bits = wanted.partition("/")
    if not slash:
        raise WrongPattern("Malformed CIDR, one '/' required")
    if not bits.isdigit():
        raise WrongPattern("Malformed CIDR, mask bits must be an integer")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise WrongPattern(f"Nonstandard IP address: {address}") from None
    try:
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        raise WrongPattern("Malformed CIDR, mask bits are not of this address") from None
    return _of_text(lambda value: _within(value, network))


def _within(value: str, network: Any) -> bool:
    try:
        return ipaddress.ip_address(value) in network
    except ValueError:
        return False


def _anything_but(wanted: Any) -> Test:
    unwanted = _unwanted(wanted)
    return lambda values: any(not unwanted(value) for value in values)


def _unwanted(wanted: Any) -> Callable[[Any], bool]:
    if not isinstance(wanted, dict):
        known = wanted if isinstance(wanted, list) else [wanted]
        if any(type_of(each) not in ("string", "number") for each in known):
            raise WrongPattern(_NO_LIST if isinstance(wanted, list) else _NO_VALUE)
        return lambda value: any(type_of(value) == type_of(k) and value == k for k in known)
    if len(wanted) != 1 or not set(wanted) <= {*_BUT_TEXTS}:
        raise WrongPattern(_NO_VALUE)
    ((name, given),) = wanted.items()
    texts = given if isinstance(given, list) else [given]
    if any(isinstance(text, dict) for text in texts):
        raise WrongPattern(_NO_VALUE)
    if any(not isinstance(text, str) for text in texts):
        raise WrongPattern(_BUT_TEXTS[name])
    if name in ("prefix", "suffix") and "" in texts:
        raise WrongPattern("Null prefix/suffix not allowed")
    tests = [_MEANT[name](text) for text in texts]
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
_MEANT: dict[str, Callable[[str], Callable[[str], bool]]] = {
    "prefix": lambda text: _affixed("prefix", text),
    "suffix": lambda text: _affixed("suffix", text),
    "equals-ignore-case": lambda text: lambda value: value.lower() == text.lower(),
    "wildcard": _like,
}
_FILTERS: dict[str, Callable[[Any], Test]] = {
    "prefix": _affix("prefix"),
    "suffix": _affix("suffix"),
    "equals-ignore-case": _same_letters,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "cidr": _cidr,
    "exists": _exists,
    "wildcard": _wildcard,
}
