"""The register step's settings."""

from typing import Literal

from pydantic import Field

from steps.config import InstanceType, Section

ENDPOINT = "endpoint"
"""Key of the customer metadata with the recipe's endpoint, whose model is the champion."""
SERVING = {
    "SAGEMAKER_TS_BATCH_SIZE": "32",
    "SAGEMAKER_TS_MAX_BATCH_DELAY": "2",  # ms; with 0, TorchServe's batches have only two requests
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Environment variables of a package whose handler answers whole batches
(``training.export.inference``): the maximum number of requests in a batch, and how long the first
one waits for others. TorchServe then runs one worker; SAGEMAKER_TS_MIN_WORKERS and _MAX_WORKERS
change that. Torch's threads wait passively, because otherwise they take the core from TorchServe's
front end.
"""


class CardConfig(Section):
    """Statements in the model card that people have to write; everything else is filled in
    automatically.
    """

    purpose_of_model: str | None = Field(default=None, max_length=2048)
    """Purpose for which the model was built."""

    intended_uses: str | None = Field(default=None, max_length=2048)
    """Uses for which the model is intended."""

    risk_rating: Literal["High", "Medium", "Low", "Unknown"] = "Unknown"
    """Your rating of the harm that a wrong response can do."""

    explanations_for_risk_rating: str | None = Field(default=None, max_length=2048)
    """Reasons for the risk rating."""

    caveats: str = Field(
        default="Registered by a pipeline whose gate it passed; gate.json has the checks.",
        max_length=2048,
    )
    """Warnings that a user of the model should know."""


class RegisterConfig(Section):
    """Group, approval and description of the model package."""

    model_package_group: str = Field(
        pattern=r"^(arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:model-package-group/)?"
        r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$",
        examples=["my-models"],
    )
    """Name of the model package group, which the step creates if it does not exist; or its ARN, if
    another account shares it by the group's policy: then it must exist.
    """

    approval: Literal["manual", "automatic"] = "manual"
    """Approval of the package, which is always registered as PendingManualApproval. ``automatic``:
    a command that waits for the execution (``--start --wait``) then approves it as
    ``pipelines.approve`` would, but leaves it pending if the execution had overrides, or anything
    does not match its record.
    """

    @property
    def group_region(self) -> str | None:
        """Return the region in the group's ARN; None if the group is given by its name."""
        group = self.model_package_group
        return group.split(":")[3] if group.startswith("arn:") else None

    content_types: tuple[str, ...] = ("application/json",)
    """MIME types that the model accepts."""

    response_types: tuple[str, ...] = ("application/json",)
    """MIME types of the model's responses."""

    inference_instances: tuple[InstanceType, ...] = ("ml.m5.large",)
    """Instance types that an endpoint or a batch transform of the model may use."""

    card: CardConfig = CardConfig()
    """The model card."""
