"""Step caching: the signature of a step's run, and the earlier run that replaces it.

The rules are those of ``trainyard.language.definition_document``, with one stricter rule: a hit
requires that every output object of the earlier run still exists, unchanged. AWS does not check
this.
"""

import time
from collections.abc import Iterable
from typing import Any

from trainyard.common.hashes import json_sha256
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.transfers import split_uri
from trainyard.emulator.sagemaker.pipelines.checked_definition import Step
from trainyard.language.definition_document import duration, key_arguments


def signature(step: Step, arguments: dict) -> str | None:
    """Return a hash over the step's cached attributes, or None when the step has no cache.

    ``arguments`` are resolved. The step's name is part of the hash: two equal steps are two steps.
    """
    cache_key = key_arguments(step.document, arguments)
    if cache_key is None:
        return None
    return json_sha256([step.name, step.type, cache_key])


def expiry(step: Step) -> float:
    """Return ``ExpireAfter`` in seconds; infinite without one. Raises ``ValidationException``."""
    text = (step.document.get("CacheConfig") or {}).get("ExpireAfter")
    try:
        return float("inf") if text is None else duration(text)
    except ValueError as error:
        raise ApiError("ValidationException", str(error)) from None


def snapshot(objects: ObjectStore, uris: Iterable[str]) -> dict[str, str]:
    """Return the ETag of every object at or under ``uris``, by URI."""
    etags: dict[str, str] = {}
    for uri in uris:
        bucket, prefix = split_uri(uri)
        for info in objects.list(bucket, prefix):
            # Only the object, or what is in the folder: the prefix data also begins database.
            if info.key == prefix or info.key.startswith(f"{prefix.rstrip('/')}/"):
                etags[f"s3://{bucket}/{info.key}"] = info.etag
    return etags


def intact(objects: ObjectStore, earlier: dict[str, str]) -> bool:
    """Return whether each object of a :func:`snapshot` still exists with the same bytes, as far as
    their number on the disk shows.
    """
    try:
        for uri, etag in earlier.items():
            # To open it compares the size of the file on the disk.
            info, stored_bytes = objects.open(*split_uri(uri))
            stored_bytes.close()
            if info.etag != etag:
                return False
    except ApiError:  # it is gone, or cut off
        return False
    return True


def find_cached_run(
    objects: ObjectStore, runs: Iterable[tuple[dict[str, Any], str]], step: Step, signature: str
) -> tuple[dict[str, Any], str] | None:
    """Return the latest successful run with that signature and intact outputs, and its execution.

    ``runs``: (step record, execution's ARN) of all steps of the pipeline's executions.
    """
    hits = [
        (record, arn)
        for record, arn in runs
        if record.get("signature") == signature and record["StepStatus"] == "Succeeded"
    ]
    newest = time.time() - expiry(step)
    # A run that was itself a cache hit has the age of the run that it reused.
    for record, arn in sorted(hits, key=lambda hit: hit[0]["EndTime"], reverse=True):
        if record["EndTime"] >= newest and intact(objects, record["outputs"]):
            return record, arn
    return None


def exists(objects: ObjectStore, uri: str) -> bool:
    """Return whether there is an object at ``uri``."""
    return objects.exists(*split_uri(uri))
