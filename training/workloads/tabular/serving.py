"""Requests to the tabular model: ``{"record": {"carrier": "UA", "distance": 719.0, …}}``.

Values are as in JSON Lines that the shard step reads; a column that is left out is missing.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import torch
from torch import nn

from training.defaults.requests import record_of, row
from training.workloads.tabular.model import inputs
from training.workloads.tabular.packing import Packing


def answer(packing: Packing, model: nn.Module, request: Mapping[str, Any]) -> dict[str, float]:
    """``probability`` that the record's label is greater than ``label_above``.

    Raises:
        DataError: the request holds no record, or a column has the wrong type.
    """
    record = record_of(request, packing.columns)
    device = next(model.parameters()).device
    samples = packing.packer().add(_row(packing, record))
    batch = {name: torch.from_numpy(array).to(device) for name, array in samples.items()}
    return {"probability": model(*inputs(batch)).double().sigmoid().item()}


def _row(packing: Packing, record: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch of one. What the model does not see, label and group, may be left out."""
    config = packing.config
    fill = {config.group: "", config.label: 0.0}
    unseen = {config.group, config.label} - {*config.categories, *config.numbers}
    return row({**record, **{name: fill[name] for name in unseen if name}}, packing.columns)
