"""The hand-written loop with FSDP2: blocks, then the rest."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from benchmarks.training.contenders.hand import loss_of
from benchmarks.training.setting import read, say


def main() -> None:
    setting = read()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = torch.distributed.init_device_mesh("cpu", (world,))
    model = setting.model()
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = setting.optimizer(model)
    for step, tokens in enumerate(setting.share(rank, world), 1):
        for group in optimizer.param_groups:
            group["lr"] = setting.rates[step - 1]
        loss = loss_of(model, tokens, setting)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), setting.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        if setting.logs(step):
            say(step, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
