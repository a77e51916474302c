"""The account and the region of a request. As on AWS, each has its own resources, and all share
the names of S3.

The region is the one that the client signed for, the account that of the key. They hold in the
thread that answers, and in every thread started from it, so background work stays where it began.
"""

import contextlib
import contextvars
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

REGION = "us-east-1"
"""Default region: that of the emulator's own clients."""
ACCOUNT = "123456789012"
"""Number of the emulator's own account: moto's default. It manages the other accounts."""
EXISTING = {ACCOUNT}
"""Numbers of the accounts of the process's endpoint."""
_NAME = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")
_ARN = re.compile(r"arn:[\w-]+:[\w-]+:(?P<region>[\w-]*):(?P<account>\d{12})?:")
_region = contextvars.ContextVar("region", default=REGION)
_account = contextvars.ContextVar("account", default=ACCOUNT)
_caller: contextvars.ContextVar[Callable[[], str]] = contextvars.ContextVar(
    "caller", default=lambda: ""
)


def region() -> str:
    """Return the region that this thread works for."""
    return _region.get()


def account() -> str:
    """Return the number of the account that this thread works for."""
    return _account.get()


def caller() -> str:
    """Return the ARN of the user or session whose request this is; empty if it is not known."""
    return _caller.get()()


@contextlib.contextmanager
def enter_scope(name: str, account_id: str = "") -> Iterator[None]:
    """Work for the region ``name`` inside the block, of the account ``account_id``, or of the
    current one.

    An invalid name means the default region.
    """
    region_token = _region.set(name if _NAME.fullmatch(name) else REGION)
    account_token = _account.set(account_id or account())
    try:
        yield
    finally:
        _account.reset(account_token)
        _region.reset(region_token)


@contextlib.contextmanager
def acting(by: Callable[[], str]) -> Iterator[None]:
    """Work inside the block for a user or session. ``by`` returns its ARN: few requests ask for
    it.
    """
    token = _caller.set(by)
    try:
        yield
    finally:
        _caller.reset(token)


def region_of(arn: str) -> str:
    """Return the region in an ARN; the default region if it has none."""
    match = _ARN.match(arn)
    return (match["region"] if match else "") or REGION


def account_of(arn: str) -> str:
    """Return the account number in an ARN; empty if it has none."""
    match = _ARN.match(arn)
    return (match["account"] if match else "") or ""


def foreign(arn: str) -> str:
    """Return the account in an ARN if it exists here and is not the current one; else an empty
    text. A number that no account here has is a placeholder, as in most examples: it means ours.
    """
    return owner if (owner := account_of(arn)) in EXISTING and owner != account() else ""


def partition() -> str:
    """Return the current region's partition, which follows ``arn:`` in an ARN."""
    names = {"cn": "aws-cn", "us-gov": "aws-us-gov"}
    return next(
        (
            partition_name
            for start, partition_name in names.items()
            if region().startswith(f"{start}-")
        ),
        "aws",
    )


class Thread(threading.Thread):
    """A thread that works for the account and region of the thread that creates it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._scope_context = contextvars.copy_context()

    def run(self) -> None:
        self._scope_context.run(super().run)
