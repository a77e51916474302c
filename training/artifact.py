"""The trained model as it is handed on: weights as safetensors, and what it takes to use them.

model.safetensors   weights, under the names that Workload.export gives them
config.json         what others read the weights with; workload, its settings, how it was trained
history.jsonl       the metric lines of the training, since its beginning
tokenizer.json      when the workload has one
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from errors import DataError
from training.data.manifest import write_atomically
from training.workloads import Workload, load


def save(
    folder: Path,
    weights: Mapping[str, Tensor],
    workload: Workload,
    description: dict[str, Any],
    history: Sequence[Mapping[str, float]],
) -> None:
    """Write the artifact; config.json comes last.

    Args:
        weights: the model's state on the CPU.
    """
    folder.mkdir(parents=True, exist_ok=True)
    exported, config = workload.export(weights)
    whole = {name: tensor.contiguous() for name, tensor in exported.items()}
    save_file(whole, folder / ".model.tmp", {"format": "pt"})
    (folder / ".model.tmp").replace(folder / "model.safetensors")
    for name, content in workload.files().items():
        write_atomically(folder / name, content)
    lines = "".join(json.dumps(line) + "\n" for line in history)
    write_atomically(folder / "history.jsonl", lines.encode())
    write_atomically(folder / "config.json", json.dumps(config | description, indent=1).encode())


def open_artifact(folder: Path) -> tuple[Workload, nn.Module, dict[str, Any]]:
    """(workload, model in evaluation mode on the CPU, description).

    Raises:
        DataError: a file is missing, or the weights are not those of the described model.
    """
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise DataError(
                f"{folder / name}: is missing; the training job did not finish its model"
            )
    try:
        description = json.loads((folder / "config.json").read_bytes())
        name, settings = description["workload"], description["workload_config"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{folder / 'config.json'}: is damaged; train the model again") from None
    workload = load(name, settings, folder)
    model = workload.model()
    try:
        model.load_state_dict(workload.restore(load_file(folder / "model.safetensors")))
    except (RuntimeError, KeyError, SafetensorError) as error:
        first = str(error).splitlines()[0]
        raise DataError(f"{folder}: the weights are not those of config.json: {first}") from None
    return workload, model.eval(), description
