"""Matrix products of linear layers in float8, with the library torchao.

For each ``nn.Linear`` in the model's blocks, both factors of its three products (output, gradient
of the input, gradient of the weight) are cast to 8 bits, scaled by their largest element: that of
the whole tensor (``tensorwise``) or of each row (``rowwise``). Weights, gradients and the
optimizer's state keep their types and names, so checkpoints and models are unaffected, and
validation multiplies without float8. A CPU has no such products: there they are emulated, with the
same rounding of the factors and multiplication in float32.

This module is imported only if needed, because torchao imports torch's compiler, which takes
seconds.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional

from training.config import TrainConfig
from training.strategies.fsdp_sharding import EXTENSION, iter_sharded_parameters
from trainyard.common.errors import TrainingError

# These loggers warn of kernels that need CUDA, which are not used here (torch's own are), and of an
# enum.
for _name in ("torchao", "torch.utils._pytree"):
    logging.getLogger(_name).setLevel(logging.ERROR)

try:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    from torchao.float8.float8_linear import Float8Linear
    from torchao.float8.float8_utils import amax_to_scale
    from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor
except ImportError as error:
    raise TrainingError(
        f"float8 needs the package torchao, which cannot be imported ({error}): install it (pip "
        "install 'torchao>=0.18,<0.19'), or set float8 to none"
    ) from None

log = logging.getLogger(__name__)

CAPABILITY = (8, 9)
"""Compute capability of the first GPUs with float8: Ada (NVIDIA Ada GPU Architecture, 2022)."""
MULTIPLE = 16
"""Rows, columns and inner width of a product must be multiples of this (torch._scaled_mm)."""


class Linear(Float8Linear):
    """torchao's layer, for any device's autocast; in evaluation it is a plain linear layer."""

    def forward(self, input: Tensor) -> Tensor:
        """Multiply as ``nn.Linear`` does.

        Raises:
            TrainingError: the number of input rows is not a multiple of 16.
        """
        if not self.training:
            return functional.linear(input, self.weight, self.bias)
        if (rows := input.numel() // self.in_features) % MULTIPLE:
            raise TrainingError(
                f"float8: a micro-batch gives a layer {rows} rows, and a product in float8 needs a "
                f"multiple of {MULTIPLE}: change micro_batch, or set float8 to none"
            )
        kind = input.device.type
        if torch.is_autocast_enabled(kind):  # torchao checks only a GPU's autocast
            input = input.to(torch.get_autocast_dtype(kind))
        return super().forward(input)


def convert_linear_layers(
    blocks: Sequence[nn.Module], config: TrainConfig, device: torch.device, *, emulate: bool
) -> None:
    """Make the blocks' linear layers multiply in float8, in place; call it before any splitting.

    A layer with a width that is not a multiple of 16 is not converted; nor is one of a class
    derived from ``nn.Linear``, which may compute something else.

    Raises:
        TrainingError: the GPU has no float8; no layer can be converted; or a tensor-parallel rank
            would have a part that cannot be multiplied in float8.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < CAPABILITY:
        raise TrainingError(
            f"float8 {config.float8}: a {torch.cuda.get_device_name(device)} has no float8, which "
            "begins at compute capability 8.9 (L4, L40S, H100 and later): set float8 to none"
        )
    if config.compile:  # this call installs torchao's workaround for triton-lang/triton#11111
        convert_to_float8_training(nn.Identity())
    settings = replace(Float8LinearConfig.from_recipe_name(config.float8), emulate=emulate)
    widths, count = set[tuple[int, int]](), 0
    for name, layer in _iter_linear_layers(blocks):
        width = layer.out_features, layer.in_features
        widths.add(width)
        if any(size % MULTIPLE for size in width):
            continue
        if any(size % (MULTIPLE * config.tensor_parallel) for size in width):
            raise TrainingError(
                f"float8: {name}, {width[0]} × {width[1]}, cannot be shared by tensor_parallel "
                f"{config.tensor_parallel} ranks in multiples of {MULTIPLE}: lower "
                "tensor_parallel, or set float8 to none"
            )
        _convert_layer(layer, settings)
        count += 1
    # A rank of a pipeline may have no block, and therefore no layer.
    if not count and (blocks or config.stages == 1):
        width_list = ", ".join(f"{out} × {into}" for out, into in sorted(widths)) or "none"
        raise TrainingError(
            "float8: no linear layer of the model's blocks (Workload.blocks) has widths that are "
            f"multiples of {MULTIPLE}; theirs are: {width_list}. Set float8 to none"
        )
    how = ", emulated: rounded as on a GPU, but slow" if emulate else ""
    log.info("float8 %s: %d linear layers%s", config.float8, count, how)


def _iter_linear_layers(blocks: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Linear]]:
    """Yield each plain linear layer in the blocks once, with its name in its block."""
    seen_ids = set[int]()
    for block in blocks:
        for name, module in block.named_modules():
            plain = type(module) is nn.Linear and "weight" in module._parameters
            if plain and id(module) not in seen_ids:
                seen_ids.add(id(module))
                yield name, module


def _convert_layer(layer: nn.Linear, settings: Float8LinearConfig) -> None:
    """Change the layer's class but keep the object, so that its hooks and references to it
    remain.
    """
    attributes = vars(Linear.from_float(layer, settings))
    vars(layer).update(
        {name: value for name, value in attributes.items() if name not in vars(layer)}
    )
    layer.__class__ = Linear


class Scales:
    """Cast the sharded weights of the ``Linear`` layers to float8 before FSDP2 gathers them.

    FSDP2 calls two methods of a weight's part; they are replaced by torchao's, and the part
    otherwise stays a plain tensor. With a scale computed from one rank's part, the values of
    another rank's part could overflow. So the largest element is found over all ranks that have
    parts of the weight, for all weights at once, before each step, as torchao's
    ``precompute_float8_dynamic_scale_for_fsdp`` does.

    Args:
        model: sharded model, not on meta.
        meshes: mesh dimensions over which a weight's parts are spread.
    """

    def __init__(self, model: nn.Module, meshes: Sequence[DeviceMesh]) -> None:
        self._groups = [mesh.get_group() for mesh in meshes if mesh.size() > 1]
        self._casts = list[WeightWithDynamicFloat8CastTensor]()
        for parameter in iter_sharded_parameters(model):
            layer, name = parameter._module_info.module, parameter._module_info.param_name
            if isinstance(layer, Linear) and name == "weight":
                # Padded, as FSDP2 gathers it: the last rank may have fewer rows.
                part = parameter._sharded_param_data.view(parameter.padded_sharded_param_size)
                kind = layer.config.cast_config_weight.target_dtype
                cast = WeightWithDynamicFloat8CastTensor(part, layer.linear_mm_config, kind)
                local = parameter._sharded_local_tensor
                for method in EXTENSION:
                    setattr(local, method, getattr(cast, method))
                parameter._init_extensions()
                self._casts.append(cast)

    @torch.no_grad()
    def update(self) -> None:
        """Compute each weight's scale from the current weights. Collective: call it on every
        rank.
        """
        if not self._casts:
            return
        parts = [cast._tensor for cast in self._casts]
        largest = torch.stack(torch._foreach_norm(parts, float("inf")))
        for group in self._groups:
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        scales = amax_to_scale(largest, self._casts[0]._dtype)
        for cast, scale in zip(self._casts, scales.unbind(), strict=True):
            cast._precomputed_scale = scale
