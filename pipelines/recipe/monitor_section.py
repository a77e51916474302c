"""The recipe's section ``monitor``: what the endpoint's captured requests are compared with."""

from pydantic import Field

from pipelines.recipe.deploy_section import Deploy
from steps.config import S3Uri, Section


class Monitor(Section):
    """Drift of an endpoint's requests and answers, by feature; quality once truths are there."""

    days: int = Field(default=7, ge=1)
    """Days that are looked at."""

    baseline: S3Uri | None = None
    """S3 object or prefix of the records to compare with (CSV, JSON Lines or Parquet), or of the
    scores of a transform step; default: what the endpoint was asked before these days."""

    baseline_days: int = Field(default=28, ge=1)
    """Days before these whose captured requests are the default baseline."""

    features: tuple[str, ...] = ()
    """Columns that are compared; default: the tabular workload's categories and numbers, with other
    models every column of the baseline."""

    prediction: str | None = Field(default=None, pattern=r"^\w+(\.\w+)*$", examples=["probability"])
    """Number in the model's JSON answer that is compared, too, as probability; a dot leads into an
    object. Default: none."""

    truths: S3Uri | None = None
    """S3 prefix of ground truths, in Model Monitor's format: what ``prediction`` should have been
    (for a probability 0 or 1). The answers' metric is compared with the evaluation's."""

    metric: str | None = None
    """Metric of the truths: log_loss, brier, accuracy, mae or mse, if the model's evaluation has
    it; default: the workload's first. The gate's ``non_inferiority`` margin is allowed for."""

    error: float = Field(default=0.05, gt=0, lt=0.5)
    """Probability that anything is called drift in a period without any."""

    least_psi: float = Field(default=0.1, ge=0)
    """Population stability index below which a difference is not drift, however certain."""

    retrain: bool = False
    """Whether ``pipelines.monitor --start`` may start the pipeline, within its budget."""

    topic: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:\S+$",
        examples=["arn:aws:sns:us-east-1:111122223333:drift"],
    )
    """ARN of the SNS topic that is told of drift."""


def refuse_monitor(monitor: Monitor | None, deploy: Deploy | None) -> str | None:
    """Return why there is nothing to monitor; None if there is."""
    if monitor is None:
        return None
    if deploy is None or not deploy.capture_share:
        return "monitor: reads captured requests; set deploy.endpoint and deploy.capture_share"
    if monitor.truths and not monitor.prediction:
        return "monitor.truths: are compared with a number in the answer; name it in prediction"
    if monitor.metric and not monitor.truths:
        return "monitor.metric: is computed from ground truths; name their prefix in monitor.truths"
    return None
