"""The objects of a prefix in S3. Apart: plan, console and budget list alike."""

from itertools import islice
from typing import Any

MOST = 10_000
"""Largest number of objects of one prefix that are listed."""


def list_objects(s3: Any, uri: str, most: int = MOST) -> list[dict[str, Any]]:
    """Return the first objects in the folder at ``uri``, or else those whose keys begin with it.

    Raises:
        ClientError: S3 refused.
    """
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    folder = f"{prefix.rstrip('/')}/" if prefix else ""
    return _list_prefix(s3, bucket, folder, most) or _list_prefix(s3, bucket, prefix, most)


def _list_prefix(s3: Any, bucket: str, prefix: str, most: int) -> list[dict[str, Any]]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return list(islice((item for page in pages for item in page.get("Contents", ())), most))
