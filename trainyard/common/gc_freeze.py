"""Exclude long-lived objects from garbage collection.

torch with its compiler is some 300,000 objects. Scanning them while torch is imported, and again at
the process's end, takes about a second of a processor: a quarter of a small training's.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def exclude_from_gc() -> Iterator[None]:
    """Exclude objects created in the block from garbage collection, now and later."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
