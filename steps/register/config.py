"""The register step's settings."""

from typing import Any, Literal

from pydantic import Field, model_validator

from steps.config import Section


class CardConfig(Section):
    """What people have to say about the model in its model card; the rest fills itself in."""

    purpose_of_model: str | None = Field(default=None, max_length=2048)
    """Why the model was made."""

    intended_uses: str | None = Field(default=None, max_length=2048)
    """What it is meant to be used for."""

    risk_rating: Literal["High", "Medium", "Low", "Unknown"] = "Unknown"
    """How much harm a wrong answer can do, as you rate it."""

    explanations_for_risk_rating: str | None = Field(default=None, max_length=2048)
    """Why it is rated so."""

    caveats: str = Field(
        default="Registered by a pipeline whose gate it passed; gate.json has the checks.",
        max_length=2048,
    )
    """What to know before using it."""


class RegisterConfig(Section):
    """Where and how the model package is recorded."""

    model_package_group: str = Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$")
    """Name of the model package group; made by the step when it does not exist."""

    approval: Literal["manual", "automatic"] = "manual"
    """Who approves. A package is registered PendingManualApproval in any case; ``automatic``: who
    waits for the run (``--start --wait``) then approves it as ``pipelines.approve`` would, and
    leaves it pending when the run had overrides, or anything does not match its record."""

    @model_validator(mode="before")
    @classmethod
    def _no_status(cls, given: Any) -> Any:
        if isinstance(given, dict) and "approval_status" in given:
            raise ValueError(
                f"approval_status is {given['approval_status']!r}; there is no such field any more:"
                " no run registers a package as Approved. Leave it out, or write approval: "
                "automatic, and the package is approved after the run, when it matches its record"
            )
        return given

    content_types: tuple[str, ...] = ("application/json",)
    """MIME types that the model accepts."""

    response_types: tuple[str, ...] = ("application/json",)
    """MIME types that the model answers with."""

    inference_instances: tuple[str, ...] = ("ml.m5.large",)
    """Instance types that an endpoint or a batch transform of the model may use."""

    card: CardConfig = CardConfig()
    """The model card."""
