"""A request's record as a batch of one: values as in JSON Lines that the shard step reads."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from torch import Tensor

from training.defaults.scores import on_device
from training.workloads import Column
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads.simple import Simple

EMPTY: dict[str, Any] = {"number": 0.0, "category": "", "text": ""}
"""Kind → what stands for a column that the model does not look at."""


def batch_of(
    workload: "Simple", request: Mapping[str, Any], device: torch.device
) -> dict[str, Tensor]:
    """The batch.

    Raises:
        DataError: the request holds no record, or one without a column that the model looks at, or
            with a value of the wrong type.
    """
    columns = workload.packing.columns
    record = record_of(request, columns)
    rest = {name: EMPTY[c.kind] for name, c in columns.items() if name not in record}
    packer = workload.packing.packer()
    batch = _Looked(on_device(packer.add(row(record | rest, columns)), device))
    workload.inputs(batch)
    if missing := sorted(batch.looked & set(rest)):
        raise DataError(f"record: has no {', '.join(missing)}, which the model looks at")
    return dict(batch)


def record_of(request: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, Any]:
    """The request's record. Raises: DataError: there is none, or it has an unknown column."""
    record = request.get("record")
    if set(request) != {"record"} or not isinstance(record, Mapping):
        raise DataError('expected {"record": {column: value, …}}')
    if unknown := sorted(set(record) - set(columns)):
        known = ", ".join(columns)
        raise DataError(f"record: no column {', '.join(unknown)}; the model reads {known}")
    return dict(record)


def row(record: Mapping[str, Any], columns: Mapping[str, Column]) -> pa.RecordBatch:
    """A record as a batch of one, in the types that the readers give.

    Raises:
        DataError: a value is none of the column's kind.
    """
    arrays = {name: _value(name, column, record.get(name)) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def _value(name: str, column: Column, value: Any) -> pa.Array:
    if column.kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise DataError(f"record.{name}: is {value!r}; expected a number or null")
        return pa.array([None if value is None else float(value)], pa.float64())
    if not isinstance(value, str | int | None):  # a boolean is an integer, too
        raise DataError(f"record.{name}: is {value!r}; expected a string, an integer, true, false")
    text = str(value).lower() if isinstance(value, bool) else value
    return pa.array([text if text is None else str(text)], pa.string())


class _Looked(dict[str, Tensor]):
    """A batch that remembers which fields were looked at."""

    def __init__(self, batch: Mapping[str, Tensor]) -> None:
        super().__init__(batch)
        self.looked: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.looked.add(name)
        return super().__getitem__(name)

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()
