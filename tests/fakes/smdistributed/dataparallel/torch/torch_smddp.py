"""A fake of SMDDP: its import registers the backend ``smddp``, here gloo under another name.

After "Use the SMDDP library in your PyTorch training script" (SageMaker Developer Guide,
data-parallel-modify-sdp-pt.html), with what it does not allow: "The smddp backend currently does
not support creating subprocess groups with the torch.distributed.new_group() API. You also cannot
use the smddp backend concurrently with other process group backends such as NCCL and Gloo."
"""

import torch.distributed as dist


def _make(store, rank: int, size: int, timeout):
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def _refuse(*arguments, **named):
    raise RuntimeError("smddp does not support torch.distributed.new_group()")


dist.Backend.register_backend("smddp", _make, devices=["cpu"])
dist.new_group = _refuse
