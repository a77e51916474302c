"""Choose which of equal records stays, by the records, not by their position.

Apart: survey, runs and packing agree by it.
"""

import numpy as np


def firsts(order: np.ndarray, tie: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Choose among equal ``order`` the record of the lowest ``tie``, then ``rank``; bool (n,).

    The choice does not depend on their order. Done in parts, and again over
    the records that stayed of each part, it is the same.

    Args:
        order: hash of the columns in which duplicates are equal, uint64 (n,).
        tie: hash of all columns, uint64 (n,).
        rank: of the raw object that the record comes from (n,).
    """
    mask = np.ones(len(order), bool)
    places = np.argsort(order, kind="stable")
    sorted_order = order[places]
    same = sorted_order[1:] == sorted_order[:-1]
    if not same.any():
        return mask
    # Hashes are seldom equal, so the sort by three keys is kept for those that are.
    equals = places[np.append(same, False) | np.append(False, same)]
    equals = equals[np.lexsort((rank[equals], tie[equals], order[equals]))]
    values = order[equals]
    mask[equals] = np.append(True, values[1:] != values[:-1])
    return mask
