"""Members of requests about pipelines that ask for what nobody here does: refused by name."""

from typing import Any

from trainyard.emulator.pipelines.checked_definition import invalid

_ALIASES = "versions have no aliases here: name one by PipelineVersionId"
NOT_DONE = {
    "PipelineVersionAlias": _ALIASES,
    "PipelineVersionAliases": _ALIASES,
    "MlflowExperimentName": "there is no MLflow tracking server here: leave it out",
}
"""Member → why it is refused."""


def refuse(request: dict[str, Any]) -> None:
    """Raises ``ValidationException`` for a request with one of them."""
    for name, why in NOT_DONE.items():
        if name in request:
            raise invalid(f"{name} {request[name]!r}: {why}")
