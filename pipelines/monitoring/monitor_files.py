"""Write a period's statistics, constraints and violations in Model Monitor's formats.

Developer guide, "Schema for Statistics", "Schema for Constraints", "Schema for Violations".
constraint_violations.json is written last: where it is, the others are.
"""

import json
from collections.abc import Iterator
from typing import Any

from pipelines.monitoring.drift import MISSING, QUALITY
from pipelines.monitoring.period import Period
from pipelines.registry.package_evidence import split
from trainyard.aws_clients import service_errors
from trainyard.quality import constraints, statistics
from trainyard.quality.model_quality import GREATER, LESS


def write(s3: Any, folder: str, period: Period, least_psi: float, kms_key: str | None) -> None:
    """Write the three files at the S3 URI ``folder``. Raises ServiceError."""
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
    documents = {
        "statistics": statistics.describe(period.now),
        "constraints": constraints.suggest(statistics.describe(period.before)),
        "constraint_violations": {"violations": [*violations(period, least_psi)]},
    }
    bucket, prefix = split(folder)
    with service_errors(f"writing {folder}"):
        for name, document in documents.items():
            s3.put_object(
                Bucket=bucket,
                Key=f"{prefix}/{name}.json",
                Body=json.dumps(document, indent=1).encode(),
                **encryption,
            )


def violations(period: Period, least_psi: float) -> Iterator[dict[str, str]]:
    """Iterate over the entries of constraint_violations.json: one for each change that is drift."""
    for change in period.changes:
        if not change.has_drifted:
            continue
        if change.respect == QUALITY and period.record:
            yield {
                "metric_name": change.feature,
                "constraint_check_type": GREATER if period.record.lower_is_better else LESS,
                "description": f"{change.movement}, Holm's p {change.chance:.2g}",
            }
            continue
        if change.feature in period.absent:
            check, text = "missing_column_check", "No request has this column"
        elif change.respect == MISSING:
            check, text = "completeness_check", f"Data completeness has changed: {change.movement}"
        else:
            check = "baseline_drift_check"
            text = (
                f"Baseline drift distance: {change.psi:.4g} exceeds threshold: {least_psi:g} "
                f"(population stability index; {change.movement}, Holm's p {change.chance:.2g})"
            )
        yield {
            "feature_name": change.feature,
            "constraint_check_type": check,
            "description": text,
        }
