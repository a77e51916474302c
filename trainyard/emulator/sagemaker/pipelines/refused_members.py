"""Members of pipeline requests that this emulator does not support; they are refused by name.

Apart: a member that is supported leaves this table and nothing else.
"""

from typing import Any

from trainyard.emulator.sagemaker.pipelines.checked_definition import invalid

_ALIASES = "versions have no aliases here: name one by PipelineVersionId"
NOT_DONE = {
    "PipelineVersionAlias": _ALIASES,
    "PipelineVersionAliases": _ALIASES,
    "MlflowExperimentName": "this emulator has no MLflow tracking server: leave it out",
}
"""Member → why it is refused."""


def refuse(request: dict[str, Any]) -> None:
    """Raise ``ValidationException`` for a request with a member of NOT_DONE."""
    for name, reason in NOT_DONE.items():
        if name in request:
            raise invalid(f"{name} {request[name]!r}: {reason}")
