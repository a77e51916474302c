"""The operations of S3, found for a request by botocore's model of the service.

S3 distinguishes operations by names in the query: ``DELETE /bucket?metadataTable`` is another
operation than ``DELETE /bucket``. The model knows all of them, so an unsupported operation is
refused by its own name, and is never mistaken for the plain one.
"""

import functools
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import botocore.session
from botocore.model import OperationModel
from werkzeug import Request

Level = Literal["service", "bucket", "object"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of S3, as it appears in requests."""

    name: str
    """Name of the operation, e.g. ``GetObject``."""
    static: tuple[tuple[str, str], ...] = ()
    """Fixed names in its query, each with its value, or an empty text for any value."""
    query: frozenset[str] = frozenset()
    """Further names that its query must have."""
    headers: frozenset[str] = frozenset()
    """Headers that distinguish it from other operations on the same path."""

    def fits(self, request: Request) -> bool:
        args = request.args
        return (
            all(k in args and v in ("", args[k]) for k, v in self.static)
            and all(name in args for name in self.query)
            and all(name in request.headers for name in self.headers)
        )

    def weight(self) -> int:
        """Return the number of conditions: of several operations that fit, the most specific is
        meant.
        """
        return len(self.static) + len(self.query) + len(self.headers)


def operation_of(level: Level, request: Request) -> Operation | None:
    """Return the operation that the request names; None if S3 has none with that method there.

    A client may name the operation by ``x-id``; otherwise S3's own rule decides.
    """
    fitting = [
        candidate
        for candidate in _table().get((level, request.method), ())
        if candidate.fits(request)
    ]
    if operation_name := request.args.get("x-id"):
        return next(
            (candidate for candidate in fitting if candidate.name == operation_name),
            Operation(operation_name),
        )
    return max(fitting, key=Operation.weight, default=None)


@functools.cache
def _table() -> dict[tuple[Level, str], list[Operation]]:
    model = botocore.session.get_session().get_service_model("s3")
    table: dict[tuple[Level, str], list[Operation]] = {}
    for name in model.operation_names:
        operation = model.operation_model(name)
        if not operation.deprecated:  # PutBucketLifecycle: the same path as its successor
            level = _level(urlsplit(operation.http["requestUri"]).path)
            table.setdefault((level, operation.http["method"]), []).append(_read(operation))
    return table


def _level(path: str) -> Level:
    """Return the level; ``/WriteGetObjectResponse`` counts as a request on a bucket of that
    name.
    """
    return "service" if path == "/" else "object" if path.count("/") > 1 else "bucket"


def _read(operation: OperationModel) -> Operation:
    static = tuple(parse_qsl(urlsplit(operation.http["requestUri"]).query, keep_blank_values=True))
    parameters: dict[str, set[str]] = {"querystring": set(), "header": set()}
    for member in operation.input_shape.required_members if operation.input_shape else ():
        location = operation.input_shape.members[member].serialization
        parameters.get(location.get("location"), set()).add(location.get("name", ""))
    headers = set() if static else parameters["header"]  # without these, it is found by name
    return Operation(
        operation.name, static, frozenset(parameters["querystring"]), frozenset(headers)
    )
