"""Which method answers which operation, and what of the operation it heeds.

Each registers itself where it is written. What a request asks beside that (a parameter, a header)
is refused by name before anything happens: an answer that ignores what was asked is a wrong one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from werkzeug import Request

from trainyard.emulator.api import ApiError
from trainyard.emulator.storage.s3_operations import Level, Operation, operation_of
from trainyard.emulator.storage.s3_xml import Response

Answer = Callable[[Any, Request, str, str], Response]
"""A method that gets the request, its bucket and its key: an empty text where there is none."""


@dataclass(frozen=True, slots=True)
class Route:
    answer: Answer
    heeds: frozenset[str]
    """Names of the query and of headers, in lower case; ``x-amz-meta-*`` is every one so begun."""


ROUTES: dict[str, Route] = {}
"""By the operation's name."""

_ALWAYS = frozenset(
    # what signs a request, frames its body or names its caller, and is heeded where that is done
    "x-amz-date x-amz-content-sha256 x-amz-security-token x-amz-decoded-content-length "
    "x-amz-trailer x-amz-te x-amz-expected-bucket-owner x-amz-sdk-checksum-algorithm "
    # what changes nothing here: nobody pays, and no object is being restored
    "x-amz-request-payer x-amz-user-agent x-amz-optional-object-attributes "
    # what AWS's C++ SDK, and pyarrow with it, says of its own model
    "x-amz-api-version".split()
)
_SIGNING = frozenset({"AWSAccessKeyId", "Signature", "Expires", "x-id"})
_CONDITIONS = frozenset(
    {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "range"}
)


def operation(*names: str, heeds: str | Iterable[str] = ()) -> Callable[[Answer], Answer]:
    """Register what answers the operations of these names.

    Raises ValueError when another does already.
    """
    wanted = frozenset(heeds.split() if isinstance(heeds, str) else heeds)

    def register(answer: Answer) -> Answer:
        for name in names:
            if ROUTES.setdefault(name, Route(answer, wanted)).answer is not answer:
                raise ValueError(f"{name} is answered twice")
        return answer

    return register


def find(level: Level, request: Request) -> Answer:
    """What answers the request. Raises ``NotImplemented``, a 501, for what nothing here does."""
    found = operation_of(level, request)
    if found is None:
        raise _unimplemented(f"{request.method} on this")
    route = ROUTES.get(found.name)
    if route is None:
        raise _unimplemented(found.name)
    for name in _asked(found, request):
        if not heeded(route, name):
            raise _unimplemented(f"{name} of {found.name}")
    return route.answer


def heeded(route: Route, name: str) -> bool:
    """Whether the operation's answer takes account of that parameter or header."""
    begun = (each[:-1] for each in route.heeds if each.endswith("*"))
    return name in route.heeds or any(name.startswith(each) for each in begun)


def _asked(found: Operation, request: Request) -> Iterator[str]:
    static = {name for name, _ in found.static}
    for name in request.args:
        if name not in static and name not in _SIGNING and not name.startswith("X-Amz-"):
            yield name
    reads = request.method in ("GET", "HEAD")
    for header in request.headers.keys():
        name = header.lower()
        special = name.startswith("x-amz-") or (name in _CONDITIONS and not reads)
        if special and name not in _ALWAYS:
            yield name


def _unimplemented(what: str) -> ApiError:
    message = f"The emulator's S3 does not implement {what}."
    return ApiError("NotImplemented", message, 501)  # S3's own status; botocore does not retry it
