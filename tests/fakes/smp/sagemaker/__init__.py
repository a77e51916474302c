"""A fake of torch.sagemaker, SMP v2: checks what it is started with, and leaves FSDP as it is.

After "The SageMaker model parallel library v2 reference" (SageMaker Developer Guide,
distributed-model-parallel-v2-reference.html) and "Hybrid sharded data parallelism": parameters come
as JSON in the hyperparameter mp_parameters; with ``hybrid_shard_degree`` 0 and no tensor
parallelism everything falls back to PyTorch's FSDP, which is what this one does with any.
"""

import json
import os
from types import SimpleNamespace

import torch.distributed as dist

KNOWN = {
    "hybrid_shard_degree", "sm_activation_offloading", "activation_loading_horizon",
    "fsdp_cache_flush_warnings", "allow_empty_shards", "tensor_parallel_degree",
    "context_parallel_degree", "expert_parallel_degree", "random_seed",
}  # fmt: skip
state = SimpleNamespace()


def init() -> None:
    given = json.loads(os.environ.get("SM_HP_MP_PARAMETERS", "{}"))
    assert given.keys() <= KNOWN, f"unknown SMP parameters: {given.keys() - KNOWN}"
    assert dist.is_initialized(), "the process group comes first"
    degree = given.get("hybrid_shard_degree", 0)
    assert 0 <= degree <= dist.get_world_size()
    state.hybrid_shard_degree = degree
