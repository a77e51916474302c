"""Settings of the recipe that are passed to the transform job.

This is a separate module because step and job read them.
"""

from pydantic import Field

from steps.job_arguments import Settings


class TransformSettings(Settings):
    """Settings in the recipe's section ``transform`` that are also arguments of the job."""

    keep: tuple[str, ...] = ()
    """Further columns of the records, such as an order's number, that are written next to the
    responses, as text."""

    max_bad_share: float = Field(default=0.01, ge=0, le=1)
    """Share of the records that may be bad before the step fails. Bad records are quarantined."""
