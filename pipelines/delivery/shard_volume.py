"""Compare the shard step's volumes with the raw data that its instances will hold.

Apart: the rest of a budget needs neither S3 nor the shard step.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from steps.shard.settings import COPIES
from trainyard.language.evaluation import Start, evaluate
from trainyard.language.expressions import ExpressionError, values
from trainyard.plan.s3_listing import MOST, list_objects

STEP = "Shard"


def remarks(s3: Any, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line if the volumes are too small for what lies under the inputs now; parameters have
    their defaults. Inputs that cannot be listed are left out.
    """
    step = next((step for step in document["Steps"] if step["Name"] == STEP), None)
    if step is None:
        return
    arguments, start = step["Arguments"], Start(values(document, {}))
    cluster = arguments["ProcessingResources"]["ClusterConfig"]
    try:
        count = int(evaluate(cluster["InstanceCount"], start))
        volume = int(evaluate(cluster["VolumeSizeInGB"], start))
        sources = [job_input["S3Input"] for job_input in arguments["ProcessingInputs"]]
        uris = [
            evaluate(source["S3Uri"], start)
            for source in sources
            if source.get("S3DataDistributionType") == "ShardedByS3Key"
        ]
        listings = [list_objects(s3, uri) for uri in uris]
    except (ClientError, ExpressionError, KeyError):
        return
    size_gb = sum(item["Size"] for items in listings for item in items) / 1e9
    # Raw data and their records; of several instances each also holds records pulled from others.
    needed_gb = (1 + (COPIES if count > 1 else 1)) * size_gb / count
    if needed_gb > volume:
        least = "at least " * any(len(items) >= MOST for items in listings)
        instances_text = f"each of {count} instances" if count > 1 else "the instance"
        yield (
            f"shard.volume_gb {volume} is too small: the raw data are {least}{size_gb:,.1f} GB, of "
            f"which {instances_text} holds its part and that part's records, {needed_gb:,.0f} "
            "GB; raise it, or shard.instance_count"
        )
