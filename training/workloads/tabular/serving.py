"""Requests to the tabular model: ``{"record": {"carrier": "UA", "distance": 719.0, …}}``.

Values are as in JSON Lines that the shard step reads; a column that is left out is missing.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import torch
from torch import nn

from training.workloads import Column
from training.workloads.tabular.model import inputs
from training.workloads.tabular.packing import Packing
from trainyard.common.errors import DataError


def answer(packing: Packing, model: nn.Module, request: Mapping[str, Any]) -> dict[str, float]:
    """``probability`` that the record's label is greater than ``label_above``.

    Raises:
        DataError: the request holds no record, or a column has the wrong type.
    """
    record = request.get("record")
    if set(request) != {"record"} or not isinstance(record, Mapping):
        raise DataError('expected {"record": {column: value, …}}')
    if unknown := sorted(set(record) - set(packing.columns)):
        known = ", ".join(packing.columns)
        raise DataError(f"record: no column {', '.join(unknown)}; the model reads {known}")
    device = next(model.parameters()).device
    samples = packing.packer().add(_row(packing, record))
    batch = {name: torch.from_numpy(array).to(device) for name, array in samples.items()}
    return {"probability": model(*inputs(batch)).double().sigmoid().item()}


def _row(packing: Packing, record: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch of one. What the model does not see, label and group, may be left out."""
    config = packing.config
    fill = {config.group: "", config.label: 0.0}
    unseen = {config.group, config.label} - {*config.categories, *config.numbers}
    arrays = {
        name: _value(name, column, fill[name] if name in unseen else record.get(name))
        for name, column in packing.columns.items()
    }
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
