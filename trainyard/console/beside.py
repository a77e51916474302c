"""What takes long to read is read beside the page, which shows it when it is there."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

Result = TypeVar("Result")

KEPT = 1_024
"""Readings that are remembered; the one that was asked for the longest ago goes first."""


@dataclass(slots=True)
class _Reading:
    version: Hashable
    future: Future[Any]
    last: Any = None
    """What the reading before this one gave."""


class Beside:
    """Readings under way and done. Any thread may ask.

    ``patient``: whoever asks waits for the answer: a page that goes into a file has no later.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.patient = patient
        self._readings: OrderedDict[Hashable, _Reading] = OrderedDict()
        self._threads = ThreadPoolExecutor(4, "beside")
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, version: Hashable, read: Callable[[], Result], until: Result
    ) -> Result:
        """What ``read`` returned for that version; what is known of an earlier one until then.

        ``until``: what there is before the first reading has ended.

        Raises:
            ServiceError: whatever ``read`` raises. It is asked once a version, all the same.
        """
        with self._lock:
            known = self._readings.get(key)
            if known is None or known.version != version:
                last = _result(known, until)
                known = _Reading(version, self._threads.submit(read), last)
                self._readings[key] = known
                while len(self._readings) > KEPT:
                    self._readings.popitem(last=False)
            self._readings.move_to_end(key)
        if self.patient or known.future.done():
            return cast(Result, known.future.result())
        return cast(Result, known.last)

    def stamp(self, *keys: Hashable) -> Hashable:
        """Differs when one of these readings has ended that had not, or is of another version."""
        with self._lock:
            found = [self._readings.get(key) for key in keys]
        return tuple((one.version, one.future.done()) if one else None for one in found)


def _result(known: _Reading | None, until: Any) -> Any:
    if known is None:
        return until
    if known.future.done() and known.future.exception() is None:
        return known.future.result()
    return known.last
