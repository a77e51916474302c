"""Ask an emulator what a row says, over HTTP and by boto3."""

import io
import json
import re
import tarfile
import time
import zipfile
from collections.abc import Iterable
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError, WaiterError
from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.response import StreamingBody

from tests.published.rows import File, Row
from trainyard.emulator.request_scope import ACCOUNT
from trainyard.emulator.server import Endpoint

REGION = "us-east-1"
PATIENCE = 90.0
"""Seconds until a call that is repeated gives up."""
_CONFIG = Config(
    parameter_validation=False, retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}
)
_UNFINISHED = re.compile(r"(InProgress|Executing|Starting|Stopping|Creating|Updating|Pending)")
_OWN = {"ResponseMetadata", "status"}
_REFUSALS = {"NotImplemented", "UnknownOperationException", "InvalidAction"}
_NAMED = re.compile(r"emulator|(run|implemented|told|reported|evaluated) here", re.IGNORECASE)
_PATH = r"[A-Za-z]\w*(?:\.\w+)*"
_REFERENCE = re.compile(rf"\$(?:\{{({_PATH})\}}|({_PATH}))")


class Unasked(Exception):
    """A row's situation does not come about."""


class Asker:
    """Clients of one emulator."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._url, self._clients = endpoint.url, {}
        self._session = boto3.Session(
            aws_access_key_id=endpoint.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=endpoint.env["AWS_SECRET_ACCESS_KEY"],
            region_name=REGION,
        )

    def judge_rows(self, file: File, rows: Iterable[Row]) -> list[dict[str, str]]:
        """``test``, ``group``, ``outcome`` and ``why`` of each row of the file."""
        scope: dict[str, Any] = {"file": file.name.replace("_", "-"), "account": ACCOUNT}
        scope |= {"region": REGION, "role": f"arn:aws:iam::{ACCOUNT}:role/pipeline"}
        found, broken = [], ""
        try:
            self._prepare(file.always, scope | {"id": scope["file"]}, scope)
        except Unasked as why:
            broken = str(why)
        for number, row in enumerate(rows, 1):
            own = scope | {"id": f"{scope['file']}-{number}"}
            outcome, why = ("differ", broken) if broken else self._judge_row(row, own)
            told = {"test": row.name, "group": row.kind, "outcome": outcome}
            found.append(told | {"why": f"{why} [{row.source}]" if why else ""})
        return found

    def _judge_row(self, row: Row, scope: dict[str, Any]) -> tuple[str, str]:
        try:
            self._prepare(row.given, scope, scope)
            got = self._call(row.ask, scope)
        except Unasked as why:
            named = _NAMED.search(str(why)) or any(code in str(why) for code in _REFUSALS)
            return "cannot be asked" if named else "differ", str(why)
        why = verdict(row, got, scope)
        if why and _is_refusal(got):
            return "cannot be asked", got["message"]
        if row.argued:
            return ("argued", row.argued) if why else ("differ", "argued, and it agrees")
        return ("differ", why) if why else ("agree", "")

    def _prepare(self, calls: list[dict], scope: dict[str, Any], into: dict[str, Any]) -> None:
        for call in calls:
            answer = self._call(call, scope)
            if "error" in answer:
                message = f"{next(iter(call))}: {answer['error']}: {answer['message']}"
                raise Unasked(message)
            for names in (scope, into):
                names.update({k: v for k, v in answer.items() if k not in _OWN})

    def _call(self, call: dict[str, Any], scope: dict[str, Any]) -> dict[str, Any]:
        """Return the members of the answer, or ``error``, ``message`` and ``status``."""
        ((what, parameters),) = call.items()
        service, _, operation = what.partition(".")
        operation, _, awaited = operation.partition(" until ")
        end = time.monotonic() + PATIENCE
        while True:
            answer = self._once(service, operation, fill_references(parameters or {}, scope))
            value = answer.get(awaited) if awaited and "error" not in answer else True
            if value and not (awaited and _UNFINISHED.fullmatch(str(value))):
                return answer
            if time.monotonic() > end:
                raise Unasked(f"{what}: {awaited} is {value!r} after {PATIENCE:g} s")
            time.sleep(0.1)

    def _once(self, service: str, operation: str, parameters: dict) -> dict[str, Any]:
        client = self._client(service)
        way, _, name = operation.rpartition(" ")
        try:
            if way == "wait":
                waiter = {"Delay": 1, "MaxAttempts": int(PATIENCE)}
                client.get_waiter(name).wait(**parameters, WaiterConfig=waiter)
                return {"waited": True}
            if way == "page":
                return client.get_paginator(name).paginate(**parameters).build_full_result()
            model = client.meta.service_model
            shape = model.operation_model(client.meta.method_to_api_mapping[name]).input_shape
            answer = getattr(client, name)(**shape_value(parameters, shape))
        except ClientError as error:
            return _flatten_failure(error.response)
        except (ParamValidationError, WaiterError) as error:
            return {"error": type(error).__name__, "message": str(error), "status": 0}
        streams = [key for key, value in answer.items() if isinstance(value, StreamingBody)]
        read = {key: answer[key].read().decode(errors="replace") for key in streams}
        return {**answer, **read, "status": answer["ResponseMetadata"]["HTTPStatusCode"]}

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            made = self._session.client(service, endpoint_url=self._url, config=_CONFIG)
            self._clients[service] = made
        return self._clients[service]


def verdict(row: Row, got: dict[str, Any], scope: dict[str, Any]) -> str:
    """Return in what the answer differs from what is published; empty if it agrees."""
    expected = fill_references(row.expected, scope)
    wanted = {**expected.get("answer", {})}
    wanted |= {"status": expected["status"]} if "status" in expected else {}
    if "error" not in expected:
        failed = f"{got['error']}: {got['message']}" if "error" in got else ""
        return failed or difference(wanted, got)
    code, _, message = expected["error"].partition(": ")
    if "error" not in got:
        return f"no error, published is {expected['error']}"
    if not message.startswith("~ "):  # one line is published; EventBridge's parser adds others
        got = got | {"message": got["message"].partition("\n")[0]}
    return difference({"error": code, "message": message or "~ ", **wanted}, got)


def fill_references(value: Any, scope: dict[str, Any]) -> Any:
    """Return the value with what the scope knows in the place of ``$name``."""
    if isinstance(value, dict):
        return {
            fill_references(key, scope): fill_references(each, scope) for key, each in value.items()
        }
    if isinstance(value, list):
        return [fill_references(each, scope) for each in value]
    if not isinstance(value, str):
        return value
    if (whole := _REFERENCE.fullmatch(value)) and _is_reference_known(whole, scope):
        return _looked_up(_path(whole), scope)
    put = lambda m: str(_looked_up(_path(m), scope)) if _is_reference_known(m, scope) else m[0]  # noqa: E731
    return _REFERENCE.sub(put, value)


def _path(match: re.Match) -> str:
    return match[1] or match[2]


def _is_reference_known(match: re.Match, scope: dict[str, Any]) -> bool:
    return _path(match).partition(".")[0] in scope


def _looked_up(path: str, scope: Any) -> Any:
    for part in path.split("."):
        try:
            scope = scope[int(part)] if isinstance(scope, list) else scope[part]
        except (KeyError, IndexError, TypeError):
            raise Unasked(f"${path}: no earlier answer has it") from None
    return scope


def shape_value(value: Any, shape: Shape | None) -> Any:
    """Return the value as the shape wants it: documents as JSON, code in an archive."""
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        return {k: shape_value(v, shape.members.get(k)) for k, v in value.items()}
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [shape_value(each, shape.member) for each in value]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return {k: shape_value(v, shape.value) for k, v in value.items()}
    if shape is None or not isinstance(value, dict | list | str):
        return value
    if shape.type_name == "blob" and "def " in str(value):
        return _archive(value) if isinstance(value, dict) else _zip_code(str(value))
    if shape.type_name in ("string", "blob") and not isinstance(value, str):
        return json.dumps(value)
    return value


def _zip_code(code: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("index.py", code)
    return data.getvalue()


def _archive(files: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


def _flatten_failure(response: dict[str, Any]) -> dict[str, Any]:
    error, status = response["Error"], response["ResponseMetadata"]["HTTPStatusCode"]
    more = {k: v for k, v in response.items() if k not in ("Error", "message")}
    own = {"error": error["Code"], "message": error.get("Message", ""), "status": status}
    return {**error, **more, **own}


def _is_refusal(got: dict[str, Any]) -> bool:
    """Whether the emulator refused by name what it does not do."""
    return "error" in got and bool(got["error"] in _REFUSALS or _NAMED.search(got["message"]))


def difference(expected: Any, got: Any, where: str = "") -> str:
    """Return the first difference in a line; empty if the answer has all that is expected."""
    if isinstance(expected, dict):
        return _of_members(expected, got, where)
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return _describe_difference(expected, got, where)
        pairs = enumerate(zip(expected, got, strict=True))
        return next(filter(None, (difference(*pair, f"{where}.{n}") for n, pair in pairs)), "")
    if isinstance(expected, str) and expected.startswith("~ "):
        found = re.search(expected[2:], str(got), re.DOTALL) if got is not None else None
        return "" if found else _describe_difference(expected, got, where)
    same = got == expected and isinstance(got, bool) == isinstance(expected, bool)
    same |= isinstance(expected, str) and str(got) == expected
    return "" if same else _describe_difference(expected, got, where)


def _of_members(expected: dict, got: Any, where: str) -> str:
    if "~has" in expected:
        found = isinstance(got, list) and any(not difference(expected["~has"], g) for g in got)
        return "" if found else _describe_difference(expected["~has"], got, f"an entry of {where}")
    if "~json" in expected:
        try:
            return difference(expected["~json"], json.loads(got), where)
        except (TypeError, ValueError):
            return _describe_difference(expected, got, where)
    if not isinstance(got, dict):
        return _describe_difference(expected, got, where)
    parts = ((name, value, got.get(name)) for name, value in expected.items())
    lines = (difference(value, its, f"{where}.{name}".strip(".")) for name, value, its in parts)
    return next(filter(None, lines), "")


def _describe_difference(expected: Any, got: Any, where: str) -> str:
    shown = (json.dumps(v, default=str, ensure_ascii=False)[:200] for v in (got, expected))
    came, published = shown
    return f"{where}: {came}, published is {published}"
