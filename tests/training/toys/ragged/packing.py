"""See config.py. A sample is the length of the list, then the list, then zeros."""

import numpy as np

from training.data.manifest import Field
from training.workloads import Column, column_packing

PLACES, NUMBERS = 8, 32
POISON = 31  # a number that makes the loss NaN
FIELDS = {"numbers": Field(dtype="uint16", shape=(PLACES + 1,))}


class Packing(column_packing.Packing):
    columns = {"numbers": Column("text")}
    fields = FIELDS

    def __init__(self, config, assets) -> None:
        super().__init__(config, assets)
        self.info = {"kind": "ragged"}

    def pack(self, records):
        rows = np.zeros((len(records), PLACES + 1), np.uint16)
        for row, text in zip(rows, records.column("numbers").to_pylist(), strict=True):
            numbers = [int(word) for word in text.split()]
            row[: len(numbers) + 1] = [len(numbers), *numbers]
        return {"numbers": rows}
