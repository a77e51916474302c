"""Chunks: batches that follow each other, read at once. Nothing here imports more than torch.

Apart: two loaders share it, and workers start with it alone.
"""

from collections.abc import Iterator, Sequence

from torch import Tensor

CHUNK = 4 << 20
"""Largest number of bytes read at once, unless one batch is more."""


def cut(chunk: dict[str, Tensor], size: int) -> Iterator[dict[str, Tensor]]:
    """Yield a chunk's samples, ``size`` at a time, as views."""
    columns: dict[str, Sequence[Tensor]] = {}
    for name, tensor in chunk.items():
        if (offsets := chunk.get(f"{name}_offsets")) is not None:
            columns[name] = tensor.split(offsets[::size].diff().tolist())
        elif name.endswith("_offsets") and name.removesuffix("_offsets") in chunk:
            starts = range(0, len(tensor) - 1, size)
            # A part's offsets begin at 0 again, as its values are a view of their own.
            columns[name] = [tensor[s : s + size + 1] - tensor[s] for s in starts]
        else:
            columns[name] = tensor.split(size)
    for parts in zip(*columns.values(), strict=True):
        yield dict(zip(columns, parts, strict=True))
