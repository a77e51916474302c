"""The table of methods that answer operations, and of the request's parts that they respect.

Each method registers itself where it is written. Any other part of a request (a parameter, a
header) is refused by name before anything happens: an answer that ignores it would be wrong.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from werkzeug import Request

from trainyard.emulator.api import ApiError
from trainyard.emulator.storage.s3_operations import Level, Operation, operation_of
from trainyard.emulator.storage.s3_xml import Response

Answer = Callable[[Any, Request, str, str], Response]
"""A method that gets the request, its bucket and its key; an empty text if there is none."""


@dataclass(frozen=True, slots=True)
class Route:
    answer: Answer
    heeds: frozenset[str]
    """Names of query parameters and headers, in lower case; ``x-amz-meta-*`` means all that start
    so."""


ROUTES: dict[str, Route] = {}
"""Routes by operation name."""

_ALWAYS = frozenset(
    # signatures, framing of the body, the caller's name: respected where these are handled
    "x-amz-date x-amz-content-sha256 x-amz-security-token x-amz-decoded-content-length "
    "x-amz-trailer x-amz-te x-amz-expected-bucket-owner x-amz-sdk-checksum-algorithm "
    # without effect here: there are no payments, and no objects to restore
    "x-amz-request-payer x-amz-user-agent x-amz-optional-object-attributes "
    # sent by AWS's C++ SDK, and so by pyarrow, about its own model
    "x-amz-api-version".split()
)
_SIGNING = frozenset({"AWSAccessKeyId", "Signature", "Expires", "x-id"})
_CONDITIONS = frozenset(
    {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "range"}
)


def operation(*names: str, heeds: str | Iterable[str] = ()) -> Callable[[Answer], Answer]:
    """Register the method that answers the operations of these names.

    Raises ValueError when another method is already registered.
    """
    heed_names = frozenset(heeds.split() if isinstance(heeds, str) else heeds)

    def register(answer: Answer) -> Answer:
        for name in names:
            if ROUTES.setdefault(name, Route(answer, heed_names)).answer is not answer:
                raise ValueError(f"{name} is answered twice")
        return answer

    return register


def find(level: Level, request: Request) -> Answer:
    """Return the method for the request. Raises ``NotImplemented``, a 501, if there is none."""
    s3_operation = operation_of(level, request)
    if s3_operation is None:
        raise _unimplemented_error(f"{request.method} on this")
    route = ROUTES.get(s3_operation.name)
    if route is None:
        raise _unimplemented_error(s3_operation.name)
    for name in _iterate_names(s3_operation, request):
        if not is_heeded(route, name):
            raise _unimplemented_error(f"{name} of {s3_operation.name}")
    return route.answer


def is_heeded(route: Route, name: str) -> bool:
    """Return whether the operation's method respects that parameter or header."""
    prefixes = (pattern[:-1] for pattern in route.heeds if pattern.endswith("*"))
    return name in route.heeds or any(name.startswith(prefix) for prefix in prefixes)


def _iterate_names(s3_operation: Operation, request: Request) -> Iterator[str]:
    static = {name for name, _ in s3_operation.static}
    for name in request.args:
        if name not in static and name not in _SIGNING and not name.startswith("X-Amz-"):
            yield name
    reads = request.method in ("GET", "HEAD")
    for header, _ in request.headers:
        name = header.lower()
        special = name.startswith("x-amz-") or (name in _CONDITIONS and not reads)
        if special and name not in _ALWAYS:
            yield name


def _unimplemented_error(feature: str) -> ApiError:
    message = f"The emulator's S3 does not implement {feature}."
    return ApiError("NotImplemented", message, 501)  # S3's own status; botocore does not retry it
