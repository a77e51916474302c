"""The hand-written loop with FSDP2: blocks, then the rest; in bfloat16 as torchtitan does it."""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from benchmarks.training.contenders.hand import train_steps
from benchmarks.training.setting import read_setting


def main() -> None:
    setting = read_setting()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    model = setting.model()
    half = setting.precision == "bfloat16"
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if half else None,
        reduce_dtype=torch.float32 if half else None,
        cast_forward_inputs=False,  # the angles of the positions stay float32
    )
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = setting.optimizer(model)
    # The weights' type does what autocast would.
    train_steps(model, optimizer, replace(setting, precision="float32"), rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
