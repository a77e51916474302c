"""A split of the tabular workload's shards, read with NumPy only: docs/shards.md is the format."""

import json
from pathlib import Path
from typing import Any

import numpy as np

Columns = tuple[list[str], list[str]]
"""Names of the categories, names of the numbers."""


class Split:
    """The samples of a channel: a folder with manifests and ``.npy`` files."""

    def __init__(self, folder: str) -> None:
        paths = sorted(Path(folder).glob("manifest-*.json"))
        self.manifests: list[dict[str, Any]] = [json.loads(path.read_bytes()) for path in paths]
        files = {}
        for manifest in self.manifests:
            shards = manifest["shards"]
            for row, file in enumerate(shards["file"].split()):
                files[file] = shards["sha256"][64 * row : 64 * row + 64]
        self._paths = [Path(folder) / file for file in sorted(files, key=lambda f: (files[f], f))]
        workload = self.manifests[0]["workload"]
        self.columns: Columns = workload["categories"], workload["numbers"]

    def rows(self, part: int = 0, parts: int = 1) -> np.ndarray:
        """Return a copy of every ``parts``-th sample from index ``part``, as a structured array."""
        arrays = [np.load(path, mmap_mode="r") for path in self._paths]
        starts = np.cumsum([0, *map(len, arrays)])
        pairs = zip(arrays, starts[:-1], strict=True)
        return np.concatenate([array[(part - start) % parts :: parts] for array, start in pairs])

    def values(self) -> list[dict[str, int]]:
        """Return for each category {value: hash} of all values in the split's manifests."""
        hashes: list[dict[str, int]] = [{} for _ in self.columns[0]]
        for manifest in self.manifests:
            for statistics in manifest["sources"]["statistics"]:
                for name, values in zip(self.columns[0], hashes, strict=True):
                    table = statistics["categories"][name]
                    pairs = zip(table["value"], table["hash"], strict=True)
                    values.update((value, code) for value, code in pairs if value is not None)
        return hashes


class Features:
    """Turns rows into XGBoost's inputs: each category's code, then the numbers; NaN if missing."""

    def __init__(self, columns: Columns, values: list[dict[str, int]]) -> None:
        self.columns, self.values = columns, values
        self._known = [np.array(sorted(hashes.values()), np.int64) for hashes in values]
        self.types = ["c"] * len(columns[0]) + ["float"] * len(columns[1])

    def build_matrix(self, rows: np.ndarray) -> np.ndarray:
        """Return float32 (n, columns); NaN for a category's value that the training split lacks."""
        matrix = np.full((len(rows), len(self.types)), np.nan, np.float32)
        for column, known in enumerate(self._known):
            hashes = rows["categories"][:, column]
            at = np.searchsorted(known, hashes).clip(max=len(known) - 1)
            matrix[:, column] = np.where(known[at] == hashes, at, np.nan)
        if self.columns[1]:
            matrix[:, len(self._known) :] = rows["numbers"]
        return matrix

    def build_row(self, record: dict[str, Any]) -> np.ndarray:
        """Return the inputs for one raw record, as sent to an endpoint: (1, columns)."""
        matrix = np.full((1, len(self.types)), np.nan, np.float32)
        for column, name in enumerate(self.columns[0]):
            code = self.values[column].get(str(record.get(name)))
            if code is not None:
                matrix[0, column] = np.searchsorted(self._known[column], code)
        for column, name in enumerate(self.columns[1], start=len(self._known)):
            if (number := record.get(name)) is not None:
                matrix[0, column] = number
        return matrix

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"columns": self.columns, "values": self.values}))

    @classmethod
    def read(cls, path: Path) -> "Features":
        tree = json.loads(path.read_bytes())
        return cls(tree["columns"], tree["values"])
