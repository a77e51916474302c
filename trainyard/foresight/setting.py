"""The setting of a training run: the model's shape, the machines, and the layout of the work on
them.

A setting is a row of ``trainyard advise --rows``; fields that a row leaves out have their default.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trainyard.common.errors import suggest_nearest
from trainyard.foresight.cloud_machines import GPUS, Gpu

Optimizer = Literal["adamw", "adamw_8bit", "sgd", "momentum", "none"]


USUAL_MEMORY = {"A100": "A100-80", "H100": "H100-80", "V100": "V100-16"}
"""Mapping of a device's name without its memory to the device that is meant: the larger A100, the
H100 of p5, the V100 of p3.
"""
BEFORE_AMPERE = frozenset({"T4", "V100-16", "V100-32"})
"""Devices without bfloat16 (NVIDIA A100 Tensor Core GPU Architecture, 2020, table 4)."""
ENDS = 2
"""Number of pipeline stages that may exist in addition to one per layer: the embedding and the
output. Llama 3 counted them as layers: 128 stages for 126 layers (arXiv:2407.21783)."""
KERNELS = {"flash1": frozenset({"V100-16", "V100-32"}), "flash2": BEFORE_AMPERE,
           "cudnn": BEFORE_AMPERE}  # fmt: skip
"""Mapping of an attention kernel to the devices of ``gpus.csv`` on which it does not run.
FlashAttention 1 needs Turing or later, FlashAttention 2 Ampere or later
(github.com/Dao-AILab/flash-attention, README), cuDNN's in Transformer Engine Ampere or later."""


def explain_refused_kernel(gpu: str, attention: str) -> str | None:
    """Return a message if an attention kernel does not run on a device; None if it does."""
    if gpu not in KERNELS.get(attention, ()):
        return None
    return f"attention {attention}: does not run on {gpu}; use flash, the likely kernel, or full"


class Setting(BaseModel):
    """A training run on ``gpus`` devices, with the batch of one optimizer step."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    gpu: str
    """Name of the device in ``gpus.csv``; also "H100", "A100", "V100"."""

    gpus: int = Field(default=1, ge=1, le=1_000_000)
    """Number of devices of the whole training (its world size); if left out, the product of the
    degrees of parallelism."""

    gpus_per_node: int = Field(default=0, ge=0)
    """Number of devices per node; 0 for that of the device's usual node, or ``gpus`` if less."""

    node_gbps: float = Field(default=0.0, ge=0)
    """Network bandwidth of a node in Gbit/s; 0 for that of the device's usual node."""

    layers: int = Field(ge=1, le=10_000)
    """Number of transformer blocks."""

    hidden: int = Field(ge=1, le=1_000_000)
    """Width of the model."""

    heads: int = Field(default=0, ge=0, le=100_000)
    """Number of attention heads; 0 for as many as have width 128."""

    kv_heads: int = Field(default=0, ge=0, le=100_000)
    """Number of heads of keys and values (grouped-query attention); 0 for as many as ``heads``."""

    ffn: int = Field(default=0, ge=0, le=10_000_000)
    """Inner width of the feed-forward part; 0 for 4 × hidden or, if ``gated``, for Llama 2's width:
    two thirds of that, rounded up to a multiple of 256."""

    gated: bool = False
    """True if the feed-forward part has a gate (SwiGLU), and so three matrices instead of two."""

    vocab: int = Field(default=50304, ge=1, le=100_000_000)
    """Number of entries of the vocabulary; the default is that of GPT-2, padded."""

    tied: bool = False
    """True if the head shares the embedding's weights."""

    positions: Literal["learned", "rotary"] = "rotary"
    """Position encoding; rotary also stands for none at all and for all without parameters."""

    dropout: float = Field(default=0.0, ge=0, lt=1)
    sequence: int = Field(default=2048, ge=1, le=1_000_000_000)
    """Number of tokens per sample."""

    micro_batch: int = Field(default=1, ge=1, le=10_000_000)
    """Number of samples per data-parallel rank in a micro-batch."""

    accumulation: int = Field(default=1, ge=1, le=10_000_000)
    """Number of micro-batches per data-parallel rank in an optimizer step."""

    tensor: int = Field(default=1, ge=1)
    """Number of tensor-parallel ranks."""

    sequence_parallel: bool = False
    """True if tensor-parallel ranks also share the sequence outside the matrix products."""

    async_tp: bool = False
    """True if tensor parallelism's communication overlaps with the matrix products."""

    pipeline: int = Field(default=1, ge=1)
    """Number of pipeline-parallel ranks."""

    interleave: int = Field(default=1, ge=1)
    """Number of stages per pipeline rank."""

    context: int = Field(default=1, ge=1)
    """Number of context-parallel ranks."""

    data: int = Field(default=0, ge=0)
    """Number of data-parallel ranks; 0 for gpus / (tensor × pipeline × context)."""

    shard: Literal["none", "optimizer", "gradients", "full"] = "none"
    """State that data-parallel ranks share instead of copying: ZeRO 0, 1, 2, 3 (FSDP is full)."""

    deepspeed: bool = False
    """True if DeepSpeed does the sharding. Its ZeRO-2 keeps the whole gradients of each rank in 16
    bits in addition to the shard that it sums in float32."""

    shard_degree: int = Field(default=0, ge=0)
    """Number of data-parallel ranks over which one copy of the sharded state is spread (hybrid
    sharding: each group of so many ranks has a copy); 0 for all of them."""

    recompute: Literal["none", "selective", "full"] = "none"
    """Results that are recomputed in the backward pass. selective, with attention full: the scores
    (Korthikanti et al. 2022); with flash: torchtitan's choice of operators."""

    attention: Literal["flash", "flash1", "flash2", "cudnn", "full"] = "flash"
    """Attention kernel. full keeps the scores, sequence × sequence, in memory. The others differ in
    time alone: the kernels of before mid-2023, FlashAttention 2, cuDNN's; flash: the likely one of
    them."""

    precision: Literal["fp32", "bf16", "fp16", "fp8"] = "bf16"
    """Precision of the matrix products. Default on a device before Ampere: fp16."""

    float8_gather: bool = False
    """True if FSDP gathers the blocks' weights in 8 bits (torchao's float8 all-gather). It has an
    effect only if precision is "fp8" and shard is "full"."""

    gradient_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """Type in which gradients are kept. If left out, it is float32, or 16 bits if weights are kept
    in 16 bits only."""

    master: bool = True
    """True if weights are kept in float32 beside, or instead of, 16 bits."""

    optimizer: Optimizer = "adamw"
    """Optimizer: adamw for all with two states, adamw_8bit for bitsandbytes', momentum for those
    with one."""

    optimizer_in_backward: bool = False
    """True if each weight is updated, and its gradient freed, as soon as the gradient is known."""

    offload: Literal["none", "optimizer", "all"] = "none"
    """State that lies in the host's memory between its uses; optimizer includes the gradients. A
    paged optimizer (bitsandbytes) is an offloaded one."""

    compile: bool = False
    lora_rank: int = Field(default=0, ge=0, le=1_000_000)
    """Rank of LoRA adapters on queries and values (Hu et al. 2021); 0 to train all weights."""

    quantization: Literal["none", "nf4", "int8"] = "none"
    """Quantization of frozen weights, with lora_rank."""

    @model_validator(mode="before")
    @classmethod
    def _complete_fields(cls, fields: Any) -> Any:
        """Fill in the fields that follow from other fields."""
        if not isinstance(fields, Mapping):
            return fields
        own_fields = {**fields, "gpu": USUAL_MEMORY.get(str(fields.get("gpu")), fields.get("gpu"))}
        if own_fields["gpu"] in BEFORE_AMPERE:
            own_fields.setdefault("precision", "fp16")
        degrees = [fields.get(name) or 1 for name in ("tensor", "pipeline", "context", "data")]
        if all(isinstance(degree, int) for degree in degrees):
            own_fields.setdefault("gpus", prod(degrees))
        return own_fields

    @field_validator("gpu")
    @classmethod
    def _check_gpu(cls, name: str) -> str:
        """Check that ``gpus.csv`` has the device."""
        if name not in GPUS:
            raise ValueError(f"no such device; {suggest_nearest(name, [*GPUS, *USUAL_MEMORY])}")
        return name

    @model_validator(mode="after")
    def _check_degrees(self) -> Self:
        """Check that the degrees of parallelism multiply to the number of devices."""
        inner = self.tensor * self.pipeline * self.context
        if self.gpus % inner:
            raise ValueError(
                f"gpus {self.gpus}: expected a multiple of tensor × pipeline × context, {inner}"
            )
        if self.data and self.data * inner != self.gpus:
            raise ValueError(
                f"data {self.data} × tensor × pipeline × context is {self.data * inner}, and "
                f"gpus {self.gpus}; leave data out to have it derived"
            )
        if self.shard_degree and self.data_parallel % self.shard_degree:
            raise ValueError(
                f"shard_degree {self.shard_degree} does not divide the {self.data_parallel} "
                "data-parallel ranks; leave it out to share over all of them"
            )
        return self

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        """Check that the model's sizes are consistent."""
        heads = self.heads or max(1, self.hidden // 128)
        if self.heads and self.hidden % heads:
            raise ValueError(f"heads {heads}: expected a divisor of hidden, {self.hidden}")
        if self.kv_heads and heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads}: expected a divisor of heads, {heads}")
        if self.lora_rank > self.hidden:
            raise ValueError(
                f"lora_rank {self.lora_rank}: expected at most hidden, {self.hidden}; typical "
                "values are 8 to 64"
            )
        if self.quantization != "none" and not self.lora_rank:
            raise ValueError(
                f"quantization {self.quantization}: expected adapters beside the frozen weights; "
                "set lora_rank, such as 16"
            )
        return self

    @model_validator(mode="after")
    def _check_device(self) -> Self:
        """Check that the device supports precision, attention kernel and number of stages."""
        stages = self.pipeline * self.interleave
        if stages > self.layers + ENDS:
            raise ValueError(
                f"pipeline {self.pipeline} × interleave {self.interleave} is {stages} stages: "
                f"expected at most one for each of the {self.layers} layers, embedding and output"
            )
        default_precision = "fp16" if self.gpu in BEFORE_AMPERE else "bf16"
        slow = self.precision == "bf16" and self.gpu in BEFORE_AMPERE
        if slow or (self.precision == "fp8" and not self.device.fp8_tflops):
            raise ValueError(
                f"precision {self.precision}: {self.gpu} does not support it; use "
                f"{default_precision}"
            )
        if refusal := explain_refused_kernel(self.gpu, self.attention):
            raise ValueError(refusal)
        return self

    @property
    def device(self) -> Gpu:
        return GPUS[self.gpu]

    @property
    def data_parallel(self) -> int:
        """Number of data-parallel ranks; ranks that share their samples count as one."""
        return self.gpus // (self.tensor * self.pipeline * self.context)

    @property
    def sharded_over(self) -> int:
        """Number of ranks over which one copy of the sharded state is spread. Context-parallel
        ranks are included, because they have the same weights.
        """
        return (self.shard_degree or self.data_parallel) * self.context

    @property
    def effective_gradient_dtype(self) -> Literal["fp32", "bf16", "fp16"]:
        """``gradient_dtype``, or its default, which depends on other fields."""
        if self.gradient_dtype is not None:
            return self.gradient_dtype
        return "fp32" if self.master or self.precision == "fp32" else "bf16"

    @property
    def node_size(self) -> int:
        return self.gpus_per_node or min(self.gpus, self.device.gpus_per_node)

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.node_size)

    @property
    def tokens(self) -> int:
        """Number of tokens of one optimizer step, over all ranks."""
        return self.data_parallel * self.micro_batch * self.accumulation * self.sequence
