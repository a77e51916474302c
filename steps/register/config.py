"""The register step's settings."""

from typing import Literal

from pydantic import Field

from steps.config import Section


class RegisterConfig(Section):
    """Where and how the model package is recorded."""

    model_package_group: str = Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$")
    """Name of the model package group; made by the step when it does not exist."""

    approval_status: Literal["PendingManualApproval", "Approved", "Rejected"] = (
        "PendingManualApproval"
    )
    """The new package's approval status."""

    content_types: tuple[str, ...] = ("application/json",)
    """MIME types that the model accepts."""

    response_types: tuple[str, ...] = ("application/json",)
    """MIME types that the model answers with."""

    inference_instances: tuple[str, ...] = ("ml.m5.large",)
    """Instance types that an endpoint or a batch transform of the model may use."""
