"""Chunks: consecutive batches that are read at once. Nothing here imports more than torch.

This is a separate module because two loaders share it, and worker processes import it alone.
"""

from collections.abc import Iterator, Sequence

from torch import Tensor

CHUNK = 4 << 20
"""Largest number of bytes read at once, unless one batch is larger."""


def split_chunk(chunk: dict[str, Tensor], size: int) -> Iterator[dict[str, Tensor]]:
    """Yield a chunk's samples as views, ``size`` samples at a time.

    A variable-width field ``f`` has its values one after the other, and its bounds in
    ``f_offsets``.
    """
    columns: dict[str, Sequence[Tensor]] = {}
    for name, tensor in chunk.items():
        if (offsets := chunk.get(f"{name}_offsets")) is not None:
            columns[name] = tensor.split(offsets[::size].diff().tolist())
        elif name.endswith("_offsets") and name.removesuffix("_offsets") in chunk:
            starts = range(0, len(tensor) - 1, size)
            # The offsets of each part begin at 0 again, because its values are a separate view.
            columns[name] = [tensor[s : s + size + 1] - tensor[s] for s in starts]
        else:
            columns[name] = tensor.split(size)
    for parts in zip(*columns.values(), strict=True):
        yield dict(zip(columns, parts, strict=True))
