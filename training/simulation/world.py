"""One rank of a world that is not there: collectives have shapes and bytes, and do nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from training.strategies.ranks import Ranks


@contextmanager
def standing_for(rank: int, world: int, per_node: int = 8) -> Iterator[Ranks]:
    """Inside, this process is ``rank`` of ``world``; nobody else has to be there.

    torch's ``fake`` backend answers each collective at once and leaves the tensors as they are.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield Ranks(rank, rank % per_node, world, torch.device("cpu"))
    finally:
        dist.destroy_process_group()
