"""The account and the region of a request.

As on AWS, each has its own resources, but names of S3 buckets are shared by all. The region is the
one that the client signed the request for; the account is that of the key. Both are set for the
thread that answers the request, and for every thread started from it, so that background work stays
in the same account and region.
"""

import contextlib
import contextvars
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

REGION = "us-east-1"
"""Default region, which the emulator's own clients use."""
ACCOUNT = "123456789012"
"""Number of the emulator's own account: moto's default. It manages the other accounts."""
EXISTING = {ACCOUNT}
"""Numbers of the accounts that exist in the endpoint of this process."""
_NAME = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")
_ARN = re.compile(r"arn:[\w-]+:[\w-]+:(?P<region>[\w-]*):(?P<account>\d{12})?:")
_region = contextvars.ContextVar("region", default=REGION)
_account = contextvars.ContextVar("account", default=ACCOUNT)
_caller: contextvars.ContextVar[Callable[[], str]] = contextvars.ContextVar(
    "caller", default=lambda: ""
)


def read_region() -> str:
    """Return the region of the current thread."""
    return _region.get()


def read_account() -> str:
    """Return the account number of the current thread."""
    return _account.get()


def read_caller() -> str:
    """Return the ARN of the user or session that made the current request; empty if not known."""
    return _caller.get()()


@contextlib.contextmanager
def enter_scope(name: str, account_id: str = "") -> Iterator[None]:
    """Set the region and the account of the current thread inside the ``with`` block.

    Args:
        name: region; the default region is used if the name is invalid.
        account_id: account number; empty for the current account.
    """
    region_token = _region.set(name if _NAME.fullmatch(name) else REGION)
    account_token = _account.set(account_id or read_account())
    try:
        yield
    finally:
        _account.reset(account_token)
        _region.reset(region_token)


@contextlib.contextmanager
def use_caller(find_arn: Callable[[], str]) -> Iterator[None]:
    """Set the user or session that makes the request, inside the ``with`` block.

    ``find_arn`` returns its ARN. It is a function, because few requests need the ARN.
    """
    token = _caller.set(find_arn)
    try:
        yield
    finally:
        _caller.reset(token)


def parse_region(arn: str) -> str:
    """Return the region in an ARN; the default region if it has none."""
    match = _ARN.match(arn)
    return (match["region"] if match else "") or REGION


def parse_account(arn: str) -> str:
    """Return the account number in an ARN; empty if it has none."""
    match = _ARN.match(arn)
    return (match["account"] if match else "") or ""


def find_other_account(arn: str) -> str:
    """Return the account number in an ARN if that account exists here and is not the current one.

    Return "" otherwise. A number that no account here has is a placeholder, as in most examples,
    and means the current account.
    """
    return owner if (owner := parse_account(arn)) in EXISTING and owner != read_account() else ""


def get_partition() -> str:
    """Return the partition of the current region, which follows ``arn:`` in an ARN."""
    names = {"cn": "aws-cn", "us-gov": "aws-us-gov"}
    return next(
        (
            partition_name
            for start, partition_name in names.items()
            if read_region().startswith(f"{start}-")
        ),
        "aws",
    )


class Thread(threading.Thread):
    """A thread with the account and the region of the thread that creates it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._scope_context = contextvars.copy_context()

    def run(self) -> None:
        self._scope_context.run(super().run)


# Definitions that all parts of the emulator share: AWS errors and ARNs.


def make_arn(service: str, resource: str) -> str:
    """Return ``arn:aws:<service>:<region>:<account>:<resource>`` for the current scope."""
    return f"arn:{get_partition()}:{service}:{read_region()}:{read_account()}:{resource}"


class ApiError(Exception):
    """An error that becomes the AWS error response to the current request.

    ``code`` is AWS's error code (``ValidationException``, ``NoSuchKey``, ...), ``message`` is the
    text for the user, ``status`` is the HTTP status (botocore retries 5xx, but not 4xx).
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    @property
    def fault(self) -> str:
        """The prefix of a job's FailureReason: ``ClientError`` or ``InternalServerError``."""
        return "InternalServerError" if self.status >= 500 else "ClientError"


def make_validation_error(message: str) -> ApiError:
    """Return a ``ValidationException`` with that message."""
    return ApiError("ValidationException", message)


class S3Error(ApiError):
    """An error of S3 with more elements in its document than the message, or with headers."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int = 400,
        *,
        fields: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(code, message, status)
        self.fields = fields or {}
        self.headers = headers or {}


# Sorting and paging, which all List... operations have in common.


def sort_items(
    items: Sequence[dict], request: dict, keys: dict[str, str], by: str, order: str
) -> list[dict]:
    """Return ``items`` sorted as ``SortBy`` and ``SortOrder`` in the request say.

    Args:
        items: items to sort.
        request: the request.
        keys: mapping of a SortBy value to the member of the items.
        by: default of SortBy.
        order: default of SortOrder.

    Raises:
        ApiError: SortBy has another value.
    """
    sort_key = request.get("SortBy", by)
    if sort_key not in keys:
        raise ApiError("ValidationException", f"SortBy {sort_key!r}: expected one of {list(keys)}")
    descending = request.get("SortOrder", order) == "Descending"
    result = sorted(items, key=lambda item: item[keys[sort_key]])
    return result[::-1] if descending else result


def passes_list_filters(
    request: dict, name: str, creation_time: float, modification_time: float
) -> bool:
    """Return whether an item passes the filters by name and time in a List... request."""
    return (
        request.get("NameContains", "").lower() in name.lower()
        and request.get("CreationTimeAfter", creation_time) <= creation_time
        and request.get("CreationTimeBefore", creation_time) >= creation_time
        and request.get("LastModifiedTimeAfter", modification_time) <= modification_time
        and request.get("LastModifiedTimeBefore", modification_time) >= modification_time
    )


def make_page(
    field: str, items: Sequence[dict], request: dict, size: int, show: Callable[[dict], dict] = dict
) -> dict:
    """Return one page of ``items``: ``{field: [...], "NextToken": ...}``.

    The page has at most MaxResults items (default ``size``), each as ``show`` returns it. The token
    is the position in the list, as a number.

    Raises:
        ApiError: the token in the request is not a number.
    """
    token = request.get("NextToken", "0")
    if not token.isdecimal():
        raise ApiError("ValidationException", f"NextToken {token!r} is not of this operation")
    start = int(token)
    stop = start + request.get("MaxResults", size)
    answer: dict = {field: [show(item) for item in items[start:stop]]}
    return answer | ({"NextToken": str(stop)} if stop < len(items) else {})
