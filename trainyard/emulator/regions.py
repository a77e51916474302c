"""The region of a request. As on AWS, regions are separate, but share the names of S3.

The region is the one that the client signed for. It holds in the thread that answers, and in every
thread started from it, so background work stays in its region.
"""

import contextlib
import contextvars
import re
import threading
from collections.abc import Iterator
from typing import Any

REGION = "us-east-1"
"""Default region: that of the emulator's own clients."""
_NAME = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")
_ARN = re.compile(r"arn:[\w-]+:[\w-]+:(?P<region>[\w-]+):")
_current = contextvars.ContextVar("region", default=REGION)


def region() -> str:
    """Return the region that this thread works for."""
    return _current.get()


@contextlib.contextmanager
def within(name: str) -> Iterator[None]:
    """Work for the region ``name`` inside the block; for the default region if the name is
    invalid.
    """
    token = _current.set(name if _NAME.fullmatch(name) else REGION)
    try:
        yield
    finally:
        _current.reset(token)


def region_of(arn: str) -> str:
    """Return the region in an ARN; the default region if it has none."""
    found = _ARN.match(arn)
    return found["region"] if found else REGION


def partition() -> str:
    """Return the current region's partition, which follows ``arn:`` in an ARN."""
    names = {"cn": "aws-cn", "us-gov": "aws-us-gov"}
    return next(
        (found for start, found in names.items() if region().startswith(f"{start}-")), "aws"
    )


class Thread(threading.Thread):
    """A thread that works for the region of the thread that creates it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ours = contextvars.copy_context()

    def run(self) -> None:
        self._ours.run(super().run)
