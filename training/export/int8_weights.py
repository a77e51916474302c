"""A model's weights as int8, with a scale for each output channel: a quarter of the bytes.

A weight with two or more dimensions is stored as int8, and beside it ``<name>.int8_scale``, float32
(channels, 1, …); the weight is their product. The model then computes in floating point with these
products, so its answers are the same on every machine, and take as long as with the full weights.

Why not int8 arithmetic: torch's dynamic quantisation is deprecated (torch.ao.quantization, and the
quantised tensors beneath it), and takes one scale for the activations of all requests in a batch,
so that an answer would depend on the others; ``torch._int_mm``, on which torchao's rests, is some
thirty times slower than float32 on CPUs without VNNI.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from training.export.safetensors_file import SafeFile
from training.finetuning import hugging_face_folder
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

SCALE = ".int8_scale"
LARGEST = 127
OTHERS = ("architectures", "model_type")
"""Left out of config.json: other libraries then refuse the folder, rather than reading the integers
as weights."""


def quantise_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return (int8, scale) of a weight: each channel's largest element becomes ±127."""
    flat = weight.float().flatten(1)
    largest = flat.abs().amax(1, keepdim=True)
    scale = (largest / LARGEST).where(largest > 0, 1.0)
    integers = (flat / scale).round().clamp(-LARGEST, LARGEST).to(torch.int8)
    return integers.view(weight.shape), scale.view(-1, *[1] * (weight.dim() - 1))


def dequantise_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's weights, those stored as int8 as float32."""
    tensors = {name: tensor for name, tensor in weights.items() if not name.endswith(SCALE)}
    for name in weights.keys() - tensors.keys():
        weight_name = name.removesuffix(SCALE)
        tensors[weight_name] = tensors[weight_name].float() * weights[name]
    return tensors


def write(model: Path, target: Path) -> None:
    """Write the model in folder ``model`` into folder ``target``, with its weights as int8.

    Raises:
        DataError: a weight is not finite, or none has two dimensions.
    """
    files = hugging_face_folder.weights(model)
    ignore_files = shutil.ignore_patterns(*(file.name for file in files), hugging_face_folder.INDEX)
    shutil.copytree(model, target, ignore=ignore_files, dirs_exist_ok=True)
    weights: dict[str, Tensor] = {}
    for name, weight in (pair for file in files for pair in load_file(file).items()):
        if not (weight.is_floating_point() and weight.dim() > 1 and weight.numel()):
            weights[name] = weight
            continue
        if not weight.isfinite().all():
            raise DataError(f"int8: weight {name} is not finite")
        weights[name], weights[name + SCALE] = quantise_weight(weight)
    if not any(name.endswith(SCALE) for name in weights):
        raise DataError(
            "gate.int8: no weight of the model has two dimensions, so int8 would change nothing; "
            "remove the field"
        )
    output = SafeFile(target / hugging_face_folder.WEIGHTS, weights)
    for name, weight in weights.items():
        output.put(name, weight)
    output.finish()
    description = hugging_face_folder.description(model) | {"precision": "int8"}
    config = {name: value for name, value in description.items() if name not in OTHERS}
    atomic_file.write(target / hugging_face_folder.CONFIG, json.dumps(config, indent=1))
