"""Choose which of several equal records is kept, by the records, not by their position.

This is a separate module because the survey, the sorted runs and the packing must agree on it.
"""

import numpy as np


def mark_kept_records(order: np.ndarray, tie: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Mark the records to keep, bool (n,): of records with equal ``order``, the one with the lowest
    ``tie``, then the lowest ``rank``.

    The choice does not depend on the records' order in the arrays. It is also the same if it is
    made in parts first, and then again among the records that were kept.

    Args:
        order: hash of the columns in which duplicates are equal, uint64 (n,).
        tie: hash of all columns, uint64 (n,).
        rank: rank of the raw object from which the record comes (n,).
    """
    mask = np.ones(len(order), bool)
    indices = np.argsort(order, kind="stable")
    sorted_order = order[indices]
    equals_next = sorted_order[1:] == sorted_order[:-1]
    if not equals_next.any():
        return mask
    # Equal hashes are rare, so only these records are sorted by three keys.
    equals = indices[np.append(equals_next, False) | np.append(False, equals_next)]
    equals = equals[np.lexsort((rank[equals], tie[equals], order[equals]))]
    values = order[equals]
    mask[equals] = np.append(True, values[1:] != values[:-1])
    return mask
