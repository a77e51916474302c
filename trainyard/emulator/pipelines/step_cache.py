"""Step caching: the signature of a step's run, and earlier runs that can replace it.

The rules are those of ``trainyard.language.cache_config``, with one stricter rule: a hit requires
that every output object of the earlier run still exists, unchanged. AWS does not check this.
"""

from collections.abc import Iterable

from trainyard.common.hashes import json_sha256
from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs.transfers import split_uri
from trainyard.emulator.pipelines.checked_definition import Step
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.language.cache_config import duration, key_arguments


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
            if info.key == prefix or info.key.startswith(f"{prefix.rstrip('/')}/"):
                etags[f"s3://{bucket}/{info.key}"] = info.etag
    return etags


def intact(objects: ObjectStore, earlier: dict[str, str]) -> bool:
    """Return whether each object of a :func:`snapshot` still exists with the same bytes, as far as
    their number on the disk shows.
    """
    try:
        for uri, etag in earlier.items():
            info, stored_bytes = objects.open(*split_uri(uri))
            stored_bytes.close()
            if info.etag != etag:
                return False
    except ApiError:  # it is gone, or cut off
        return False
    return True


def exists(objects: ObjectStore, uri: str) -> bool:
    """Return whether there is an object at ``uri``."""
    return objects.exists(*split_uri(uri))
