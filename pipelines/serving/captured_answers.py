"""Read what an endpoint captured: bodies of requests and answers, and the numbers in answers."""

import json
import math
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.common.errors import nearest

UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What reading JSON of another form raises."""


def body(side: Mapping[str, str]) -> Any:
    """Return a captured body. Raises one of ``UNREADABLE``, also for a body that is not JSON."""
    data = b64decode(side["data"]) if side["encoding"] == "BASE64" else side["data"]
    return json.loads(data)


def answer(line: str | bytes) -> Any:
    """Return the answer of a captured line; None for one that has none, or is none itself."""
    try:
        return body(json.loads(line)["captureData"]["endpointOutput"])
    except UNREADABLE:
        return None


def inside(answer: Any, path: str) -> Any:
    """Return what stands in an answer at ``path``, whose dots lead into objects; None without."""
    for member in path.split("."):
        answer = answer.get(member) if isinstance(answer, dict) else None
    return answer


def number_at(answer: Any, path: str) -> float | None:
    """Return the number at ``path``; None for anything else, NaN and infinity included."""
    value = inside(answer, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond float64
        return None


def numbers(answer: Any) -> Iterator[str]:
    """Iterate over the paths of an answer's numbers."""
    for name, value in answer.items() if isinstance(answer, dict) else ():
        yield from (f"{name}.{rest}" for rest in numbers(value))
        if number_at(answer, name) is not None:
            yield name


def without_number(path: str, answers: Sequence[Any]) -> str | None:
    """Return a message that no answer has a number at ``path``, with the nearest path that has one;
    None if some answer has it, or there are no answers.
    """
    if not answers or any(number_at(reply, path) is not None for reply in answers):
        return None
    number_names = [*dict.fromkeys(name for reply in answers for name in numbers(reply))]
    hint = nearest(path, number_names) if number_names else "there are no numbers in them"
    return f"none of {len(answers):,} captured answers has a number {path!r}; {hint}"
