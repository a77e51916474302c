"""Sorting and paging, which all List... operations share."""

from collections.abc import Callable, Sequence

from trainyard.emulator.api import ApiError


def sort_items(
    items: Sequence[dict], request: dict, keys: dict[str, str], by: str, order: str
) -> list[dict]:
    """Return ``items`` sorted as ``SortBy`` and ``SortOrder`` ask.

    ``keys``: SortBy value -> member of the items; ``by`` and ``order`` are the defaults.
    """
    sort_key = request.get("SortBy", by)
    if sort_key not in keys:
        raise ApiError("ValidationException", f"SortBy {sort_key!r}: expected one of {list(keys)}")
    descending = request.get("SortOrder", order) == "Descending"
    result = sorted(items, key=lambda item: item[keys[sort_key]])
    return result[::-1] if descending else result


def page(
    field: str,
    items: Sequence[dict],
    request: dict,
    size: int,
    show: Callable[[dict], dict] = dict,
) -> dict:
    """Return ``{field: [...], "NextToken": ...}``: at most MaxResults (default ``size``) of
    ``items``.

    The token is the position in the list, as a number.
    """
    token = request.get("NextToken", "0")
    if not token.isdecimal():
        raise ApiError("ValidationException", f"NextToken {token!r} is not one of this operation's")
    start = int(token)
    stop = start + request.get("MaxResults", size)
    answer: dict = {field: [show(item) for item in items[start:stop]]}
    return answer | ({"NextToken": str(stop)} if stop < len(items) else {})
