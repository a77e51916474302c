"""Requests to a service that uses REST with JSON, such as Lambda, read with botocore's model."""

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape
from werkzeug import Request, Response

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_shapes import check_shape

_GREEDY, _PLAIN = r"(?P<{}>.+)", r"(?P<{}>[^/]+)"


class Rest:
    """The REST protocol of the service ``service``, according to botocore's model."""

    def __init__(self, service: str) -> None:
        self._service = service

    def answer(
        self, request: Request, operations: Mapping[str, Callable[[dict], dict]]
    ) -> Response:
        """Perform the request with one of ``operations``. Refuse any other operation."""
        try:
            operation, path = self.find_operation(request)
            if operation is None:
                message = f"{self._service} has no operation {request.method} {request.path}"
                raise ApiError("UnknownOperationException", message, 404)
            if operation.name not in operations:
                message = f"The emulator does not implement {operation.name} of {self._service}."
                raise ApiError("UnknownOperationException", message)
            parameters = _parse_parameters(operation, request, path)
            check_shape(operation, parameters)
            return self._build_response(operation, operations[operation.name](parameters))
        except ApiError as failure:
            return _make_error_response(failure)

    def find_operation(self, request: Request) -> tuple[OperationModel | None, dict[str, str]]:
        """Return (operation with the request's method and path, parameters in the path).

        Return (None, {}) if there is none.
        """
        for method, pattern, operation in self._routes:
            match = pattern.fullmatch(request.path.rstrip("/"))
            if match and method == request.method:
                return operation, match.groupdict()
        return None, {}

    def _build_response(self, model: OperationModel, answer: dict) -> Response:
        """Return the answer's members where the model puts them: headers, status, payload or
        JSON.
        """
        status, headers, body = model.http.get("responseCode", 200), {}, {}
        shape = model.output_shape
        payload = shape.serialization.get("payload") if shape else None
        for name, value in answer.items():
            serialization = shape.members[name].serialization if shape else {}
            if serialization.get("location") == "statusCode":
                status = value
            elif serialization.get("location") == "header":
                headers[serialization["name"]] = str(value)
            elif name != payload:
                body[name] = value
        data = answer.get(payload, b"") if payload else json.dumps(body) if shape else ""
        return Response(data, status, headers, content_type="application/json")

    @cached_property
    def _model(self) -> ServiceModel:
        return ServiceModel(Loader().load_service_model(self._service, "service-2"), self._service)

    @cached_property
    def _routes(self) -> list[tuple[str, re.Pattern[str], OperationModel]]:
        models = [self._model.operation_model(name) for name in self._model.operation_names]
        return [(model.http["method"], _compile_pattern(model), model) for model in models]


def parse_json_object(data: bytes) -> dict:
    """Return a request's body. Raises ``SerializationException`` if it is not a JSON object."""
    try:
        document = json.loads(data or b"{}")
    except (ValueError, RecursionError) as wrong:
        message = f"The request is not JSON: {wrong}"
        raise ApiError("SerializationException", message) from None
    if not isinstance(document, dict):
        raise ApiError("SerializationException", "The request must be a JSON object.")
    return document


def _make_error_response(failure: ApiError) -> Response:
    """Return the error in the protocol's form."""
    body = {"Type": "User" if failure.status < 500 else "Service", "Message": failure.message}
    headers = {"x-amzn-ErrorType": failure.code}
    return Response(json.dumps(body), failure.status, headers, content_type="application/json")


def _compile_pattern(model: OperationModel) -> re.Pattern[str]:
    """Return a regular expression for the paths of an operation, with a group per parameter."""
    path = model.http["requestUri"].partition("?")[0].rstrip("/")
    parts = re.split(r"\{(\w+\+?)\}", path)
    return re.compile(
        "".join(
            (_GREEDY if part.endswith("+") else _PLAIN).format(part.rstrip("+"))
            if index % 2
            else re.escape(part)
            for index, part in enumerate(parts)
        )
    )


def _parse_parameters(model: OperationModel, request: Request, path: dict[str, str]) -> dict:
    """Return the parameters of a request, from its path, query, headers and body."""
    shape = model.input_shape
    if shape is None:
        return {}
    payload = shape.serialization.get("payload")
    parameters: dict[str, Any] = (
        {payload: request.get_data()} if payload else _parse_body(request, shape)
    )
    for name, member in shape.members.items():
        location = member.serialization.get("location")
        wire = member.serialization.get("name", name)
        if location == "uri":
            parameters[name] = path[wire]
        elif location == "querystring" and wire in request.args:
            parameters[name] = _convert_scalar(request.args.getlist(wire), member)
        elif location == "header" and wire in request.headers:
            parameters[name] = request.headers[wire]
    return parameters


def _parse_body(request: Request, shape: Any) -> dict:
    """Return the parameters in the JSON body, under boto3's names."""
    members = shape.members
    wires = {member.serialization.get("name", name): name for name, member in members.items()}
    body = parse_json_object(request.get_data())
    renamed_members = {wires.get(key, key): value for key, value in body.items()}
    try:
        return {
            k: _decode_blobs(v, members[k]) if k in members else v
            for k, v in renamed_members.items()
        }
    except ValueError as wrong:
        message = f"The request contains a blob that is not base64: {wrong}"
        raise ApiError("SerializationException", message) from None


def _decode_blobs(value: Any, shape: Shape) -> Any:
    """Return ``value`` with each blob decoded from base64, including in nested structures."""
    if shape.type_name == "blob" and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if shape.type_name == "structure" and isinstance(value, dict):
        members: Any = getattr(shape, "members", {})
        return {k: _decode_blobs(v, members[k]) if k in members else v for k, v in value.items()}
    return value


def _convert_scalar(values: list[str], shape: Shape) -> Any:
    """Return the values of a query parameter, converted to the type in the model."""
    if shape.type_name == "list":
        return values
    if shape.type_name == "boolean":
        return values[0].lower() == "true"
    if shape.type_name in ("integer", "long"):
        return int(values[0]) if re.fullmatch(r"-?\d{1,15}", values[0]) else values[0]
    return values[0]


def parse_form_list(form: Mapping[str, str], name: str) -> list[Any]:
    """Return the list ``name`` of strings or dictionaries in a form (``Tags.member.1.Key``)."""
    items: dict[int, Any] = {}
    for key, value in form.items():
        if match := re.fullmatch(rf"{name}\.member\.(\d{{1,4}})(?:\.(\w+))?", key):
            number, member = int(match[1]), match[2]
            items[number] = value if member is None else {**items.get(number, {}), member: value}
    return [items[number] for number in sorted(items)]
