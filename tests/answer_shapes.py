"""Every answer that a client of the tests gets from the emulator, held to botocore's output shape.

The root conftest installs the check: a test in which an answer breaks its shape fails.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore
from botocore.model import Shape
from botocore.parsers import JSONParser, ResponseParser
from botocore.validate import ParamValidator, ValidationErrors

VIOLATIONS: list[str] = []
"""What was wrong in answers since the last test, one line for each member."""
SUCCESS = range(200, 300)
"""HTTP status of an answer; the others are errors, with shapes of their own."""


ARGUED = {
    'DescribeModelPackageOutput: Missing required parameter in input: "ModelPackageName"',
    'ModelPackageSummary: Missing required parameter in input: "ModelPackageName"',
}
"""Members that the shape demands and AWS leaves out: a package of a group has no name."""
LOCK = Path(__file__).parents[1] / "locks/packages.txt"
IS_LOCKED = f"\nbotocore=={botocore.__version__} " in LOCK.read_text(encoding="utf-8")
"""False under another botocore. An older one does not know every member that the emulator, like
AWS, answers, and ignores those; all else is checked under it, too."""


class AnswerValidator(ParamValidator):
    """botocore's check of requests, for answers: types, required and unknown members, enums."""

    def _validate_string(self, param: Any, shape: Shape, errors: ValidationErrors, name: str):
        super()._validate_string(param, shape, errors, name)
        if isinstance(param, str) and (known := shape.metadata.get("enum")) and param not in known:
            errors.report(name, "unknown field", unknown_param=param, valid_names=known)

    def _validate_blob(self, param: Any, shape: Shape, errors: ValidationErrors, name: str):
        """Accept base64 text, and the stream of a body that the parser leaves out."""


def violations(shape: Shape, answer: dict[str, Any]) -> Iterator[str]:
    """Iterate over the members of ``answer`` that break the shape."""
    found = AnswerValidator().validate(_without_nulls(answer), shape)
    if found.has_errors():
        lines = (f"{shape.name}: {line}" for line in found.generate_report().splitlines())
        checked = (line for line in lines if IS_LOCKED or "Unknown parameter in" not in line)
        yield from (line for line in checked if line not in ARGUED)


def _without_nulls(value: Any) -> Any:
    """Leave out members that are null, as botocore does: to a client they are absent."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def install() -> None:
    """Check each answer that botocore parses in this process, if it came from the emulator."""
    parse = ResponseParser.parse

    def check_parsed_answer(
        self: ResponseParser, response: dict[str, Any], shape: Shape | None
    ) -> Any:
        parsed = parse(self, response, shape)
        from_emulator = "x-amzn-requestid" in {name.lower() for name in response["headers"]}
        if shape is not None and from_emulator and response["status_code"] in SUCCESS:
            VIOLATIONS.extend(violations(shape, _members(self, response, parsed)))
        return parsed

    ResponseParser.parse = check_parsed_answer


def _members(parser: ResponseParser, response: dict[str, Any], parsed: Any) -> dict[str, Any]:
    """Return the answer's members; JSON as it was sent, since the parser drops unknown ones."""
    if isinstance(parser, JSONParser):
        return json.loads(response["body"] or b"{}")
    return {name: value for name, value in parsed.items() if name != "ResponseMetadata"}
