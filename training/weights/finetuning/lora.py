"""Adapters of a model: injected by peft, taken from its state, written in peft's format, merged.

adapter/adapter_model.safetensors   A and B of each layer, under its name in the exported model
        adapter_config.json         what ``peft.PeftModel.from_pretrained`` reads them with

They are in their own folder, because in the folder of a whole model transformers would add them
again.
"""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from training.dropout import Dropout
from training.export.weight_location import SafeFile
from training.weights.finetuning.adapters import Adapters, Tuning
from training.weights.initial.build_model import record_changes
from training.workloads import Workload
from trainyard.common import atomic_file
from trainyard.common.errors import DataError, TrainingError

WEIGHTS, SETTINGS = "adapter/adapter_model.safetensors", "adapter/adapter_config.json"
PREFIX = "base_model.model."
"""Prefix of each name in WEIGHTS (peft: utils/save_and_load.py)."""
NAME = "default"
"""The adapter's name: peft's default for a single adapter."""
T = TypeVar("T")


def apply_tuning(model: nn.Module, workload: Workload, tuning: Tuning, seed: int) -> None:
    """Freeze what is not trained, and add adapters, in place; adapters draw their weights from
    ``seed``.

    Raises:
        TrainingError: a pattern or target matches nothing in this model.
    """
    freeze_weights(model, tuning.freeze)
    if tuning.adapters:
        inject_adapters(model, workload, tuning.adapters, seed)


def freeze_weights(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Freeze the weights whose names match a pattern; ``*`` stands for any characters.

    Raises:
        TrainingError: a pattern matches no weight.
    """
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        matches = [name for name in parameters if fnmatchcase(name, pattern)]
        if not matches:
            raise TrainingError(
                f"train.freeze: {pattern!r} matches none of the model's weights, which are "
                f"{_format_some_names(parameters)}; * stands for any characters, as in blocks.0.*"
            )
        for name in matches:
            parameters[name].requires_grad_(False)


def inject_adapters(model: nn.Module, workload: Workload, adapters: Adapters, seed: int) -> None:
    """Add adapters to the targets, and freeze everything else.

    A is drawn, B is 0 (Hu et al., 4.1). ``model.from_base`` then contains the names of the base's
    weights, which checkpoints do not save.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.lora import LoraLayer

    target_names = find_target_layers(model, workload, adapters.targets)
    config = LoraConfig(
        r=adapters.rank,
        lora_alpha=adapters.alpha,  # type: ignore[arg-type]  # any number
        lora_dropout=adapters.dropout,
        target_modules=target_names,
    )
    torch.manual_seed(seed)  # for a real model; on meta the draws depend on the training's seed
    with record_changes(model):
        inject_adapter_in_model(config, model, NAME)
    for module in model.modules():
        if isinstance(module, LoraLayer) and adapters.dropout:
            # Depends on the sample, not on the micro-batch.
            module.lora_dropout[NAME] = Dropout(adapters.dropout)
    base = frozenset(n for n, p in model.named_parameters() if not p.requires_grad)
    model.from_base = base  # type: ignore[assignment]  # torch's modules take any attribute


def find_target_layers(model: nn.Module, workload: Workload, ends: tuple[str, ...]) -> list[str]:
    """Return the names of the linear layers that get adapters.

    Raises:
        TrainingError: a target is the name of no linear layer of the blocks, or they have none.
    """
    block_ids = {id(m) for block in workload.blocks(model) for m in block.modules()}
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and id(module) in block_ids
    ]
    for end in ends or ("",):
        if not any(_matches_ending(name, end) for name in linear):
            raise TrainingError(
                f"train.adapters.targets: {end!r} is not a linear layer of the model's blocks; "
                f"theirs are {_format_some_names({name.rpartition('.')[2]: 0 for name in linear})}"
            )
    return [name for name in linear if not ends or any(_matches_ending(name, end) for end in ends)]


def split_adapters(weights: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """Split weights into (the base's, by the model's names; adapters, by
    ``<layer>.lora_A``/``B``).
    """
    base, adapters = {}, {}
    for name, tensor in weights.items():
        layer, separator, _ = name.rpartition(f".{NAME}.weight")
        if separator and layer.endswith((".lora_A", ".lora_B")):
            adapters[layer] = tensor
        else:
            base[name.replace(".base_layer.", ".")] = tensor
    return base, adapters


def add_adapters(
    tensors: Mapping[str, Tensor], adapters: Mapping[str, Tensor], scale: float
) -> dict[str, Tensor]:
    """Return ``tensors`` with scale × B A added to each layer's weight (Hu et al., section 4.1).

    Raises:
        KeyError: the layer of an adapter is missing.
    """
    result = dict(tensors)
    for name, a in adapters.items():
        layer, _, kind = name.rpartition(".")
        if kind == "lora_A":
            weight, b = result[f"{layer}.weight"], adapters[f"{layer}.lora_B"]
            wide = weight.to(torch.promote_types(weight.dtype, a.dtype))
            result[f"{layer}.weight"] = wide + scale * (b @ a).to(wide)
    return result


def rename_adapters(workload: Workload, adapters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the adapters under the exported model's names; they keep their own if it renames
    none.
    """
    rename = getattr(workload, "export_adapters", dict)
    return dict(rename(adapters))


def write_adapters(
    folder: Path, adapters: Mapping[str, Tensor], settings: Adapters, base: Mapping[str, Any]
) -> None:
    """Write the adapters' weights and their settings.

    Args:
        adapters: adapters as named by ``rename_adapters``.
        base: where the base model is: its ``uri`` and ``sha256``.
    """
    tensors = {f"{PREFIX}{n}.weight": t.contiguous().clone() for n, t in sorted(adapters.items())}
    file = SafeFile(folder / WEIGHTS, tensors)
    for name, tensor in tensors.items():
        file.put(name, tensor)
    file.finish()
    content = {
        "peft_type": "LORA",
        "base_model_name_or_path": base.get("uri"),
        "revision": base.get("sha256"),
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": sorted({name.rpartition(".")[0] for name in adapters}),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    atomic_file.write_file(folder / SETTINGS, json.dumps(content, indent=1))


def read_adapters(folder: Path) -> tuple[dict[str, Tensor], float]:
    """Return the adapters, as they were given to ``write_adapters``, and their scale.

    Raises:
        DataError: a file is missing.
    """
    for name in (WEIGHTS, SETTINGS):
        if not (folder / name).is_file():
            raise DataError(
                f"{folder / name}: is missing; the training run did not finish writing its model"
            )
    content = json.loads((folder / SETTINGS).read_bytes())
    tensors = load_file(folder / WEIGHTS)
    names = {n: n.removeprefix(PREFIX).removesuffix(".weight") for n in tensors}
    return {names[n]: tensor for n, tensor in tensors.items()}, content["lora_alpha"] / content["r"]


def _matches_ending(name: str, end: str) -> bool:
    """Return whether ``end`` is the whole name or its last parts; an empty one matches every
    name.
    """
    return not end or name == end or name.endswith(f".{end}")


def _format_some_names(names: Mapping[str, object], limit: int = 8) -> str:
    """List the first names for a message, and count the others."""
    head = list(names)[:limit]
    return ", ".join(head) + (f" and {len(names) - limit} more" if len(names) > limit else "")
