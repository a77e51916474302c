"""What values in a definition can be when it runs: IAM patterns, ``*`` where a run decides."""

import re
from collections.abc import Mapping
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.document import Step, steps_of
from trainyard.language.expressions import (
    GET,
    JOIN,
    JSON_GET,
    ExpressionError,
    Reference,
    as_text,
    is_expression,
    lookup,
    parse_get,
)

_HASH = re.compile(r"[0-9a-f]{16,}")  # a folder named by its content: another one at each change


class Values:
    """Resolves expressions of one definition, with parameters at their defaults."""

    def __init__(self, name: str, document: Mapping[str, Any]) -> None:
        self.name = name
        self.steps: tuple[Step, ...] = tuple(steps_of(document["Steps"]))
        self._by_name = {step.name: step for step in self.steps}
        self._parameters = {p["Name"]: p for p in document.get("Parameters") or ()}

    def text(self, value: Any, where: str) -> str:
        """``value`` as a pattern: literal but for ``*`` in place of what a run decides.

        ``where`` names the field in errors.

        Raises:
            DefinitionError: a reference leads nowhere, or a parameter has no default.
        """
        try:
            return self._text(value, where)
        except ExpressionError as error:
            raise DefinitionError(f"{where}: {error}") from None

    def step(self, name: str) -> Step:
        """Raises :class:`ExpressionError` where there is none of that name."""
        if name not in self._by_name:
            raise ExpressionError(f"there is no step {name!r}; there are {sorted(self._by_name)}")
        return self._by_name[name]

    def _text(self, value: Any, where: str) -> str:
        if not is_expression(value):
            return as_text(value)
        if JSON_GET in value:
            return "*"
        if JOIN in value:
            parts = [self._text(part, where) for part in value[JOIN]["Values"]]
            return str(value[JOIN].get("On", "")).join(parts)
        return self._reference(parse_get(value[GET]), where)

    def _reference(self, reference: Reference, where: str) -> str:
        if reference.kind == "Parameters":
            return self._parameter(reference.name)
        if reference.kind == "Execution":
            return self.name if reference.name == "PipelineName" else "*"
        return self._property(self.step(reference.name), reference.path, where)

    def _parameter(self, name: str) -> str:
        if "DefaultValue" not in self._parameters.get(name, {}):
            raise ExpressionError(
                f"parameter {name!r} has no default value, so what a run may touch is not known; "
                "give it one"
            )
        return as_text(self._parameters[name]["DefaultValue"])

    def _property(self, step: Step, path: str, where: str) -> str:
        """A property is what the step was asked for; the model's place the service makes of it."""
        if path == "ModelArtifacts.S3ModelArtifacts":
            folder = lookup(step.arguments, "OutputDataConfig.S3OutputPath", where)
            return f"{self._text(folder, where)}/*/output/model.tar.gz"
        if path.rpartition(".")[2].endswith(("Name", "Arn")):
            return "*"
        return self._text(lookup(step.arguments, path, where), where)


def split_uri(uri: str, where: str) -> tuple[str, str]:
    """``s3://bucket/key`` as a bucket and a pattern of the key.

    Raises:
        DefinitionError: it is no S3 URI, or a run chooses the bucket.
    """
    match = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]+[a-z0-9])(?:/(.*))?", uri)
    if not match:
        raise DefinitionError(
            f"{where}: {uri!r} is no s3://bucket/key with a fixed bucket, so no policy can name it"
        )
    return match[1], match[2] or ""


def folder_patterns(key: str) -> tuple[str, ...]:
    """The keys that a job may touch which is given ``key`` as a prefix.

    Cut at the first part that a run decides: IAM's ``*`` matches slashes, so what stands behind it
    hardly narrows. A part that is a hash of its content is such a one: policies must not change
    with every line of code.
    """
    parts = []
    for part in key.split("/"):
        if "*" in part or _HASH.fullmatch(part):
            return ("/".join([*parts, "*"]),)
        parts.append(part)
    if key == "" or key.endswith("/"):
        return (f"{key}*",)
    return (key, f"{key}/*")
