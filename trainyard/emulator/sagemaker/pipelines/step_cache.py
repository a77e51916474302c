"""Step caching: compute the signature of a step's run, and find the earlier run that replaces it.

The rules are those of ``trainyard.language.definition_document``, with one stricter rule: a cache
hit requires that every output object of the earlier run still exists unchanged. AWS does not check
this.
"""

import time
from collections.abc import Iterable
from typing import Any

from trainyard.common.hashes import hash_json
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.transfers import split_uri
from trainyard.emulator.sagemaker.pipelines.checked_definition import Step
from trainyard.language.definition_document import parse_duration, select_cache_key_arguments


def compute_signature(step: Step, arguments: dict) -> str | None:
    """Return a hash over the attributes of a step that the cache compares. Return None if the step
    has no cache.

    ``arguments`` are the resolved Arguments. The step's name is part of the hash, so equal steps
    with different names do not share results.
    """
    cache_key = select_cache_key_arguments(step.document, arguments)
    if cache_key is None:
        return None
    return hash_json([step.name, step.type, cache_key])


def parse_expiry(step: Step) -> float:
    """Return ``ExpireAfter`` in seconds, or infinity if it is not set. Raises
    ``ValidationException`` if it is not a duration.
    """
    text = (step.document.get("CacheConfig") or {}).get("ExpireAfter")
    try:
        return float("inf") if text is None else parse_duration(text)
    except ValueError as error:
        raise ApiError("ValidationException", str(error)) from None


def take_snapshot(objects: ObjectStore, uris: Iterable[str]) -> dict[str, str]:
    """Return the ETag of every object at or under ``uris``, by URI."""
    etags: dict[str, str] = {}
    for uri in uris:
        bucket, prefix = split_uri(uri)
        for info in objects.list(bucket, prefix):
            # Take only the object at the URI and those in its folder: listing the prefix ``data``
            # also returns ``database``.
            if info.key == prefix or info.key.startswith(f"{prefix.rstrip('/')}/"):
                etags[f"s3://{bucket}/{info.key}"] = info.etag
    return etags


def is_intact(objects: ObjectStore, earlier: dict[str, str]) -> bool:
    """Return whether each object in a snapshot of :func:`take_snapshot` still exists unchanged: its
    ETag is the same, and its file has the stored size.
    """
    try:
        for uri, etag in earlier.items():
            # Opening an object also checks the size of its file on disk.
            info, stored_bytes = objects.open(*split_uri(uri))
            stored_bytes.close()
            if info.etag != etag:
                return False
    except ApiError:  # the object is missing or its file is truncated
        return False
    return True


def find_cached_run(
    objects: ObjectStore, runs: Iterable[tuple[dict[str, Any], str]], step: Step, signature: str
) -> tuple[dict[str, Any], str] | None:
    """Return the step record of the latest successful run with that signature and intact outputs,
    and the ARN of its execution. Return None if there is none.

    ``runs`` are pairs of a step record and its execution's ARN, for all executions of the pipeline.
    """
    hits = [
        (record, arn)
        for record, arn in runs
        if record.get("signature") == signature and record["StepStatus"] == "Succeeded"
    ]
    newest = time.time() - parse_expiry(step)
    # A cache hit stores no signature, so only original runs are found, and their age counts.
    for record, arn in sorted(hits, key=lambda hit: hit[0]["EndTime"], reverse=True):
        if record["EndTime"] >= newest and is_intact(objects, record["outputs"]):
            return record, arn
    return None


def has_object(objects: ObjectStore, uri: str) -> bool:
    """Return whether there is an object at ``uri``."""
    return objects.exists(*split_uri(uri))
