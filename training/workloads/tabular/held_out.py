"""The rows on which a baseline's one setting is chosen: a fifth that is not fitted."""

import numpy as np

from training.data.manifest import Samples

BLOCKS, HELD_OUT_EVERY = 100, 5


def held_out(samples: Samples) -> np.ndarray | None:
    """Which rows are held out, bool (n,); None where one side has a single label, as few rows have.

    A fifth: of the groups, if the rows have any, else of BLOCKS blocks of neighbouring rows, since
    neighbours are often alike.
    """
    labels = samples["label"]
    block = np.arange(len(labels)) * BLOCKS // len(labels)
    if "group" in samples:
        block = np.unique(samples["group"], return_inverse=True)[1]
    held = block % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    both = all(len(np.unique(labels[side])) == 2 for side in (held, ~held))
    return held if both else None
