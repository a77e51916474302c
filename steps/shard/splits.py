"""The split of a record: from a hash of its key, never from its position."""

import numpy as np
import pyarrow as pa

from steps.shard.record_hashes import column_hashes
from steps.shard.shard_plan import SPLITS


def split_numbers(hashes: np.ndarray, validation_share: float, test_share: float) -> np.ndarray:
    """Return the index into SPLITS for each hash (uint64), uint8.

    The lowest hashes are the test split, the next ones validation: a larger test share takes from
    the others and never gives back.
    """
    test = int(test_share * 2.0**64)
    validation = int((test_share + validation_share) * 2.0**64)
    if not 0 <= test <= validation < 2**64:
        raise ValueError(f"shares {validation_share} and {test_share} leave nothing to train on")
    out = np.zeros(len(hashes), np.uint8)
    out[hashes < np.uint64(validation)] = 1
    out[hashes < np.uint64(test)] = 2
    return out


def split_of(key: str | float, validation_share: float, test_share: float) -> str:
    """Return the split of every record whose key is ``key``."""
    hashes = column_hashes(pa.array([key]))
    return SPLITS[split_numbers(hashes, validation_share, test_share)[0]]
