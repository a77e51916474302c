"""See config.py. A sample is the length of the list, then the list, then zeros."""

import numpy as np

from training.data.manifest import Field
from training.workloads import Column

PLACES, NUMBERS = 8, 32
POISON = 31  # a number that makes the loss NaN
FIELDS = {"numbers": Field(dtype="uint16", shape=(PLACES + 1,))}


class Packing:
    columns = {"numbers": Column("text")}
    identity = ()
    fields = FIELDS

    def __init__(self, config, assets) -> None:
        self.config, self.assets, self.info = config, assets, {"kind": "ragged"}

    def files(self):
        return {}

    def packer(self):
        return self

    def add(self, records):
        rows = np.zeros((len(records), PLACES + 1), np.uint16)
        for row, text in zip(rows, records.column("numbers").to_pylist(), strict=True):
            numbers = [int(word) for word in text.split()]
            row[: len(numbers) + 1] = [len(numbers), *numbers]
        return {"numbers": rows}

    def flush(self):
        return {"numbers": np.empty((0, PLACES + 1), np.uint16)}

    def statistics(self):
        return {}
