# packages: megatron-core==0.16.1
# ends: Torch not compiled with CUDA enabled
"""Megatron-core on gloo: groups and model are made, the first step asks CUDA for a device."""

import os

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611", "RANK": "0", "WORLD_SIZE": "1"}
torch.distributed.init_process_group("gloo")
parallel_state.initialize_model_parallel(1, 1)
sizes = {"num_layers": 1, "hidden_size": 32, "num_attention_heads": 2}
config = TransformerConfig(**sizes, use_cpu_initialization=True)
layers = get_gpt_layer_local_spec()
model = GPTModel(config, layers, vocab_size=64, max_sequence_length=16)
tokens = torch.randint(0, 64, (2, 16))
mask = torch.ones(2, 1, 16, 16, dtype=torch.bool)
model(tokens, torch.arange(16).repeat(2, 1), mask, labels=tokens)
print("works")
