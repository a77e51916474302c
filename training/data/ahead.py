"""Micro-batches on the device, those of the next step on their way while this one is computed."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Batch = Mapping[str, Tensor]


class Ahead:
    """Takes a step's micro-batches from the loader to the device.

    On CUDA they are copied on a stream of their own, out of pinned memory, so neither the host nor
    the computation waits for a copy that had a step's time. Elsewhere nothing is read ahead.

    Args:
        batches: a loader's.
        count: micro-batches of a step.
    """

    def __init__(self, batches: Iterator[Batch], count: int, device: torch.device) -> None:
        self._batches, self._count, self._device = batches, count, device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._coming: tuple[list[Batch], Any] | None = None
        self._failed: Exception | None = None

    def fetch(self) -> None:
        """Send the next step's; called when this one's work is given to the device.

        A failure is one of the step that needs them: ``take`` raises it.
        """
        if self._stream is None or self._coming is not None or self._failed is not None:
            return
        try:
            self._coming = self._sent(self._stream)
        except Exception as error:  # noqa: BLE001  raised where they are asked for
            self._failed = error

    def take(self) -> list[Batch]:
        """The next step's, for the current stream.

        Raises:
            DataError: a shard is missing or damaged.
        """
        if self._stream is None:
            return self._moved()
        self.fetch()
        if self._failed is not None:
            raise self._failed
        assert self._coming is not None  # noqa: S101 (``fetch`` has, or failed)
        (batches, arrived), self._coming = self._coming, None
        current = torch.cuda.current_stream(self._device)
        current.wait_event(arrived)
        for batch in batches:
            for tensor in batch.values():
                tensor.record_stream(current)  # its memory is not the copying stream's to reuse
        return batches

    def _sent(self, stream: Any) -> tuple[list[Batch], Any]:
        """The copies, and the event after the last one."""
        with torch.cuda.stream(stream):
            return self._moved(), stream.record_event()

    def _moved(self) -> list[Batch]:
        return [moved(next(self._batches), self._device) for _ in range(self._count)]


def moved(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """The batch on the device; from pinned memory without waiting for it."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
