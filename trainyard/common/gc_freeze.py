"""What is made once and stays need not be looked through for garbage again and again.

torch with its compiler is some 300,000 objects. Looked through while it is imported, and again at
the process's end, they take about a second of a processor: a quarter of a small training's.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """What is made in the block is not looked through for garbage, neither now nor later."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
