"""The hand-written loop with FSDP2: blocks, then the rest."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from benchmarks.training.contenders.hand import train
from benchmarks.training.setting import read


def main() -> None:
    setting = read()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    model = setting.model()
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = setting.optimizer(model)
    train(model, optimizer, setting, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
