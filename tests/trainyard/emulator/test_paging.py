"""All pages together are the list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.request_scope import ApiError, page, sort_items


@given(st.lists(st.integers()), st.integers(1, 7))
def test_pages_put_together_are_the_list(numbers: list[int], size: int) -> None:
    items, got, request = [{"N": n} for n in numbers], [], {"MaxResults": size}
    while True:
        answer = page("Items", items, request, 10)
        got += answer["Items"]
        assert len(answer["Items"]) <= size
        if "NextToken" not in answer:
            break
        request["NextToken"] = answer["NextToken"]
    assert got == items


@given(st.lists(st.integers()))
def test_order(numbers: list[int]) -> None:
    items = [{"N": n} for n in numbers]
    up = sort_items(items, {"SortOrder": "Ascending"}, {"Number": "N"}, "Number", "Descending")
    assert [item["N"] for item in up] == sorted(numbers)
    assert sort_items(items, {}, {"Number": "N"}, "Number", "Descending") == up[::-1]


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ApiError, match="SortBy 'Colour'"):
        sort_items([], {"SortBy": "Colour"}, {"Number": "N"}, "Number", "Ascending")
    with pytest.raises(ApiError, match="NextToken"):
        page("Items", [], {"NextToken": "x"}, 10)
