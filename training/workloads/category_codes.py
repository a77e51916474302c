"""Values of categories as 64-bit hashes, the same on every machine, in every run."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

MISSING = 0  # the hash of a missing value


@dataclass(frozen=True)
class EncodedColumn:
    """A column of strings as indices into its distinct values."""

    values: pa.Array
    """The distinct values, then null."""
    codes: np.ndarray
    """Hash of each value, int64."""
    index: np.ndarray
    """Index into ``values`` for each row, int32."""

    @property
    def hashes(self) -> np.ndarray:
        """Hash of each row's value, int64."""
        return self.codes[self.index]


class Codes:
    """Hashes the values of a dictionary only once if it recurs with other rows.

    It does recur: three splits share a batch's dictionary, as do the batches of a Parquet row
    group.
    """

    def __init__(self, encode: Callable[[list[str]], np.ndarray] | None = None) -> None:
        self._encode = encode or value_hashes
        self._last: dict[str, tuple[pa.Array, pa.Array, np.ndarray]] = {}
        """Column → its last dictionary, that with a null appended, and their codes."""

    def encode_column(self, name: str, column: pa.Array) -> EncodedColumn:
        """Encode the column of this name: strings, or a dictionary of strings."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        dictionary, indices = column.dictionary, column.indices
        if name not in self._last or not dictionary.equals(self._last[name][0]):
            values = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
            codes = np.append(self._encode(dictionary.to_pylist()), MISSING)
            self._last[name] = dictionary, values, codes
        _, values, codes = self._last[name]
        if indices.null_count:
            indices = indices.fill_null(len(dictionary))
        return EncodedColumn(values, codes, indices.to_numpy())


def value_hashes(values: list[str]) -> np.ndarray:
    """Return the values' hashes as samples store them: SipHash-2-4 with pandas' key, as int64."""
    from pandas.util import hash_array  # importing pandas takes half a second per rank

    return hash_array(np.array(values, dtype=object), categorize=False).view(np.int64)
