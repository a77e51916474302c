"""Settings of the recipe that are passed to the transform job. Apart: step and job read them."""

from pydantic import Field

from steps.job_arguments import Settings


class TransformSettings(Settings):
    """Settings in the recipe's section ``transform``, each of which is an argument of the job."""

    keep: tuple[str, ...] = ()
    """Further columns of the records, such as an order's number, to be written beside the answers,
    as text."""

    max_bad_share: float = Field(default=0.01, ge=0, le=1)
    """Share of the records that may be bad before the step fails; they are quarantined."""
