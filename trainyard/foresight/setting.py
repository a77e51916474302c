"""A training to foresee: the model's shape, the machines, and how the work is laid out on them.

A setting is what a row of ``trainyard advise --rows`` holds; what a row leaves out has the default
that its field states. Other words for fields and values are in ``aliases.py``.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trainyard.common.errors import nearest
from trainyard.foresight import field_aliases
from trainyard.foresight.gpus import GPUS, Gpu

Optimizer = Literal["adamw", "adamw_8bit", "sgd", "momentum", "none"]


class Setting(BaseModel):
    """One training on ``gpus`` devices; times and sizes are those of one optimizer step."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    gpu: str
    """Name of the device in ``gpus.csv``; also "H100", "A100 40GB", "NVIDIA A10G", "RTX 4090"."""

    gpus: int = Field(default=1, ge=1, le=1_000_000)
    """Devices of the whole training: its world size; left out, what the degrees multiply to."""

    gpus_per_node: int = Field(default=0, ge=0)
    """Devices of a node; 0 for as many as the device's usual node has, or all of ``gpus``."""

    node_gbps: float = Field(default=0.0, ge=0)
    """Network of a node in 10⁹ bits a second; 0 for that of the device's usual node."""

    layers: int = Field(ge=1, le=10_000)
    """Transformer blocks."""

    hidden: int = Field(ge=1, le=1_000_000)
    """Width of the model."""

    heads: int = Field(default=0, ge=0, le=100_000)
    """Attention heads; 0 for heads of 128."""

    kv_heads: int = Field(default=0, ge=0, le=100_000)
    """Heads of keys and values (grouped-query attention); 0 for as many as heads."""

    ffn: int = Field(default=0, ge=0, le=10_000_000)
    """Inner width of the feed-forward part; 0 for 4 × hidden, and, gated, for Llama 2's: two thirds
    of that, rounded up to a multiple of 256."""

    gated: bool = False
    """Whether the feed-forward part has a gate (SwiGLU): three matrices and not two."""

    vocab: int = Field(default=50304, ge=1, le=100_000_000)
    """Entries of the vocabulary; the default is GPT-2's, padded."""

    tied: bool = False
    """Whether the head shares the embedding's weights."""

    positions: Literal["learned", "rotary"] = "rotary"
    """rotary also for none at all: what has no parameters ("rope", "alibi")."""

    dropout: float = Field(default=0.0, ge=0, lt=1)
    sequence: int = Field(default=2048, ge=1, le=1_000_000_000)
    """Tokens of a sample."""

    micro_batch: int = Field(default=1, ge=1, le=10_000_000)
    """Samples of a data-parallel rank at a time."""

    accumulation: int = Field(default=1, ge=1, le=10_000_000)
    """Micro-batches of a data-parallel rank in an optimizer step."""

    tensor: int = Field(default=1, ge=1)
    sequence_parallel: bool = False
    async_tp: bool = False
    pipeline: int = Field(default=1, ge=1)
    interleave: int = Field(default=1, ge=1)
    """Stages that a pipeline rank has of the model."""

    context: int = Field(default=1, ge=1)
    data: int = Field(default=0, ge=0)
    """Data-parallel ranks; 0 for gpus / (tensor × pipeline × context)."""

    shard: Literal["none", "optimizer", "gradients", "full"] = "none"
    """What data-parallel ranks share instead of copying: ZeRO 0, 1, 2, 3 (FSDP is full);
    also "ddp", "zero1" to "zero3", "fsdp", 0 to 3."""

    deepspeed: bool = False
    """Whether DeepSpeed shares. Its ZeRO-2 holds each rank's whole gradients in 16 bits beside the
    share that it sums in float32."""

    shard_degree: int = Field(default=0, ge=0)
    """Data-parallel ranks that share one copy of what ``shard`` names (hybrid: groups of them hold
    copies); 0 for all of them."""

    recompute: Literal["none", "selective", "full"] = "none"
    """What is computed again in the backward pass. selective, with attention full: the scores
    (Korthikanti et al. 2022); with flash: torchtitan's choice of operators. Also
    false and true (full), "sac"."""

    attention: Literal["flash", "flash1", "flash2", "cudnn", "full"] = "flash"
    """full keeps the scores, sequence × sequence, in memory. The others differ in time alone: the
    kernels of before mid-2023, FlashAttention 2, cuDNN's; flash: the likely one of them.
    Also "sdpa" (flash), "flash_attention_2", "eager" (full)."""

    precision: Literal["fp32", "bf16", "fp16", "fp8"] = "bf16"
    """Of the matrix products; also "bfloat16", "float8" …"""

    float8_gather: bool = False
    """Whether FSDP gathers the blocks' weights in 8 bits (torchao's float8 all-gather). It is of
    precision fp8 with shard full, and changes nothing elsewhere."""

    gradient_dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """In which gradients are kept. Left out: float32, or 16 bits with weights that are kept in
    nothing else."""

    master: bool = True
    """Whether weights are kept in float32 beside, or instead of, 16 bits; also "fp32" (true) and
    "bf16", "none" (false)."""

    optimizer: Optimizer = "adamw"
    """adamw for all with two states ("adam"), adamw_8bit for bitsandbytes' ("paged_adamw_8bit"),
    momentum for those with one
    ("lion")."""

    optimizer_in_backward: bool = False
    """Whether each weight is updated, and its gradient freed, as soon as it is there."""

    offload: Literal["none", "optimizer", "all"] = "none"
    """What lies in the host's memory between its uses; with the optimizer's state its gradients. A
    paged optimizer (bitsandbytes) is an offloaded one. true and "cpu" are "optimizer"."""

    compile: bool = False
    lora_rank: int = Field(default=0, ge=0, le=1_000_000)
    """Rank of LoRA adapters on queries and values (Hu et al. 2021); 0 trains all weights."""

    quantization: Literal["none", "nf4", "int8"] = "none"
    """Of frozen weights, with lora_rank; also "4bit" and "8bit"."""

    @model_validator(mode="before")
    @classmethod
    def _in_our_words(cls, fields: Any) -> Any:
        return field_aliases.translated(fields) if isinstance(fields, Mapping) else fields

    @field_validator("gpu")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in GPUS:
            raise ValueError(f"no such device; {nearest(name, [*GPUS])}")
        return name

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
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
    def _is_a_model(self) -> Self:
        heads = self.heads or max(1, self.hidden // 128)
        if self.heads and self.hidden % heads:
            raise ValueError(f"heads {heads}: expected a divisor of hidden, {self.hidden}")
        if self.kv_heads and heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads}: expected a divisor of heads, {heads}")
        if self.lora_rank > self.hidden:
            raise ValueError(
                f"lora_rank {self.lora_rank}: expected at most hidden, {self.hidden}; 8 to 64 are "
                "usual"
            )
        if self.quantization != "none" and not self.lora_rank:
            raise ValueError(
                f"quantization {self.quantization}: expected adapters beside the frozen weights; "
                "set lora_rank, such as 16"
            )
        if self.precision == "fp8" and not self.device.fp8_tflops:
            raise ValueError(f"precision fp8: {self.gpu} does not multiply in it; take bf16")
        return self

    @property
    def device(self) -> Gpu:
        return GPUS[self.gpu]

    @property
    def data_parallel(self) -> int:
        """Ranks that have samples of their own; those that share each sample count as one."""
        return self.gpus // (self.tensor * self.pipeline * self.context)

    @property
    def sharded_over(self) -> int:
        """Ranks that share one copy of what ``shard`` names; context ranks hold the same weights,
        and share them, too.
        """
        return (self.shard_degree or self.data_parallel) * self.context

    @property
    def gradients_in(self) -> Literal["fp32", "bf16", "fp16"]:
        """``gradient_dtype``, or what follows where it is left out."""
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
        """Tokens of one optimizer step, over all ranks."""
        return self.data_parallel * self.micro_batch * self.accumulation * self.sequence
