"""Rows to a pandas frame whose columns have set dtypes, however many rows there are."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trainyard.common.errors import TrainyardError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TEXT, NUMBER, COUNT, FLAG = "string", "float64", "Int64", "boolean"
TIME = "datetime64[ns, UTC]"

TYPED = {"String": TEXT, "Integer": COUNT, "Float": NUMBER, "Boolean": FLAG}
"""Type of a pipeline's parameter → dtype."""


def installed() -> Any:
    """The module pandas, which is loaded by who makes a frame alone.

    Raises:
        TrainyardError: it is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as missing:
        raise TrainyardError(f"no {missing.name} here: pip install {missing.name}") from None
    return pandas


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> "DataFrame":
    """A frame of those columns; a row lacks what it has no key for.

    Raises:
        TrainyardError: pandas is not installed.
    """
    pandas = installed()
    found = list(rows)
    data = {name: _column([row.get(name) for row in found], of) for name, of in columns.items()}
    frame: DataFrame = pandas.DataFrame(data)
    return frame


def _column(values: list[Any], dtype: str) -> "Series":
    pandas = installed()
    column: Series = pandas.Series(values, dtype="object" if dtype == TIME else dtype)
    if dtype == TIME:  # each in the local time zone of its day
        column = pandas.to_datetime(column, utc=True).dt.as_unit("ns")
    return column
