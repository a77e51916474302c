"""The region that a request is for. Each is a world of its own, as on AWS; S3's names are of all.

It is that which the client has signed for, in the thread that answers, and in every thread that
begins there: what runs in the background knows whose it is.
"""

import contextlib
import contextvars
import re
import threading
from collections.abc import Iterator
from typing import Any

REGION = "us-east-1"
"""Where nothing says another one: the region of the emulator's own clients."""
_NAME = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")
_ARN = re.compile(r"arn:[\w-]+:[\w-]+:(?P<region>[\w-]+):")
_current = contextvars.ContextVar("region", default=REGION)


def region() -> str:
    """The region that this thread works for."""
    return _current.get()


@contextlib.contextmanager
def within(name: str) -> Iterator[None]:
    """Works for the region of that name; for our own where none is called so."""
    token = _current.set(name if _NAME.fullmatch(name) else REGION)
    try:
        yield
    finally:
        _current.reset(token)


def region_of(arn: str) -> str:
    """The region in an ARN; our own where there is none in it."""
    found = _ARN.match(arn)
    return found["region"] if found else REGION


def partition() -> str:
    """What an ARN begins with after ``arn:``."""
    names = {"cn": "aws-cn", "us-gov": "aws-us-gov"}
    return next(
        (found for start, found in names.items() if region().startswith(f"{start}-")), "aws"
    )


class Thread(threading.Thread):
    """A thread that works for the region of the one that makes it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ours = contextvars.copy_context()

    def run(self) -> None:
        self._ours.run(super().run)
