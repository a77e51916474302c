"""What values in a definition can be when it runs: IAM patterns, ``*`` where a run decides."""

import re
from collections.abc import Mapping
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.evaluation import Start, Unknown, evaluate, join
from trainyard.language.expressions import ExpressionError, as_text, lookup
from trainyard.language.parameters import declared
from trainyard.language.steps import Step, steps_of

_HASH = re.compile(r"[0-9a-f]{16,}")  # a folder named by its content: another one at each change


class Values(Start):
    """What expressions of one definition can be, with parameters at their defaults."""

    def __init__(self, name: str, document: Mapping[str, Any]) -> None:
        given = declared(document).items()
        super().__init__({n: p["DefaultValue"] for n, p in given if "DefaultValue" in p})
        self.name = name
        self.steps: tuple[Step, ...] = tuple(steps_of(document["Steps"]))
        self._by_name = {step.name: step for step in self.steps}

    def text(self, value: Any, where: str) -> str:
        """``value`` as a pattern: literal but for ``*`` in place of what a run decides.

        ``where`` names the field in errors.

        Raises:
            DefinitionError: a reference leads nowhere, or a parameter has no default.
        """
        try:
            found = evaluate(value, self)
            return found.filled("*") if isinstance(found, Unknown) else as_text(found)
        except ExpressionError as error:
            raise DefinitionError(f"{where}: {error}") from None

    def step(self, name: str) -> Step:
        """Raises :class:`ExpressionError` where there is none of that name."""
        if name not in self._by_name:
            raise ExpressionError(f"there is no step {name!r}; there are {sorted(self._by_name)}")
        return self._by_name[name]

    def parameter(self, name: str) -> Any:
        if name not in self._parameters:
            raise ExpressionError(
                f"parameter {name!r} has no default value, so what a run may touch is not known; "
                "give it one"
            )
        return self._parameters[name]

    def variable(self, name: str) -> Any:
        return self.name if name == "PipelineName" and self.name else super().variable(name)

    def property(self, step: str, path: str) -> Any:
        """What the step was asked for, or what the service makes of it; else a run decides."""
        arguments = self.step(step).arguments
        if path == "ModelArtifacts.S3ModelArtifacts":
            folder = evaluate(lookup(arguments, "OutputDataConfig.S3OutputPath", step), self)
            kind = lookup(arguments, "OutputDataConfig", step).get("CompressionType")
            name = "model/" if kind == "NONE" else "model.tar.gz"
            return below(folder, super().property(step, path), f"/output/{name}")
        if path.startswith("CalculatedBaseline"):
            uri = lookup(arguments, "ProcessingOutputConfig.Outputs[0].S3Output.S3Uri", step)
            return below(evaluate(uri, self), super().property(step, path))
        if path.rpartition(".")[2].endswith(("Name", "Arn")):
            return super().property(step, path)
        try:
            asked = lookup(arguments, path, f"step {step}")
        except ExpressionError:  # OutputParameters, and whatever else its answer alone has
            return super().property(step, path)
        return evaluate(asked, self)


def below(folder: Any, *names: Any) -> Any:
    """What lies below ``folder``, which ends with one slash or with none: the service puts one
    slash between."""
    parts = list((folder.parts or (folder,)) if isinstance(folder, Unknown) else (folder,))
    if isinstance(parts[-1], str):
        parts[-1] = parts[-1].removesuffix("/")
    return join([*parts, "/", *names])


def split_uri(uri: str, where: str) -> tuple[str, str]:
    """``s3://bucket/key`` as a bucket and a pattern of the key.

    Raises:
        DefinitionError: it is not an S3 URI, or a run chooses the bucket.
    """
    match = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]+[a-z0-9])(?:/(.*))?", uri)
    if not match:
        raise DefinitionError(
            f"{where}: {uri!r} is not s3://bucket/key with a fixed bucket, so no policy can name it"
        )
    return match[1], match[2] or ""


def folder_patterns(key: str) -> tuple[str, ...]:
    """The keys that a job may touch which is given ``key`` as a prefix.

    Cut at the first part that a run decides: IAM's ``*`` matches slashes, so what stands behind it
    hardly narrows. A part that is a hash of its content is such a one: policies must not change
    with every line of code.
    """
    parts: list[str] = []
    for part in key.split("/"):
        if "*" in part or _HASH.fullmatch(part):
            return ("/".join([*parts, "*"]),)
        parts.append(part)
    if key == "" or key.endswith("/"):
        return (f"{key}*",)
    return (key, f"{key}/*")
