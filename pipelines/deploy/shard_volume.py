"""Compare the shard step's volumes with the raw data that its instances will hold."""

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from steps.shard.settings import COPIES
from trainyard.language.evaluation import Start, evaluate
from trainyard.language.expressions import ExpressionError
from trainyard.language.parameters import values
from trainyard.plan.s3_listing import MOST, listed

STEP = "Shard"


def remarks(s3: Any, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line if the volumes are too small for what lies under the inputs now; parameters have
    their defaults. Inputs that cannot be listed are left out.
    """
    step = next((one for one in document["Steps"] if one["Name"] == STEP), None)
    if step is None:
        return
    arguments, start = step["Arguments"], Start(values(document, {}))
    cluster = arguments["ProcessingResources"]["ClusterConfig"]
    try:
        count = int(evaluate(cluster["InstanceCount"], start))
        volume = int(evaluate(cluster["VolumeSizeInGB"], start))
        sources = [one["S3Input"] for one in arguments["ProcessingInputs"]]
        uris = [
            evaluate(one["S3Uri"], start)
            for one in sources
            if one.get("S3DataDistributionType") == "ShardedByS3Key"
        ]
        found = [listed(s3, uri) for uri in uris]
    except (ClientError, ExpressionError, KeyError):
        return
    size = sum(item["Size"] for items in found for item in items) / 1e9
    needed = (1 + (COPIES if count > 1 else 1)) * size / count
    if needed > volume:
        least = "at least " * any(len(items) >= MOST for items in found)
        each = f"each of {count} instances" if count > 1 else "the instance"
        yield (
            f"shard.volume_gb {volume} is too small: the raw data are {least}{size:,.1f} GB, of "
            f"which {each} holds its part and that part's records, {needed:,.0f} GB; raise it, or "
            "shard.instance_count"
        )
