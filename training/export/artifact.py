"""The exported model: weights as safetensors, and everything needed to use them.

model.safetensors   weights, under the names that Workload.export gives them; absent if the training
                    trained adapters, unless they are merged. Large models have several files, and
                    model.safetensors.index.json (``training.export.sharded_export``)
adapter/            adapters, in peft's format (``training.finetuning.lora``)
config.json         what other libraries load the weights with; workload, settings, how it was
                    trained
history.jsonl       the metric lines of the training, since its beginning
tokenizer.json      if the workload has one
packages.txt        packages installed where it was trained, as ``name==version`` lines
code/               the code that answers requests with it (``training.export.inference``)
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from email.parser import HeaderParser
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from training.export import sharded_export, shipped_files
from training.export.weight_location import TIES, Weights, fill, retie_weights
from training.finetuning import base_model, hugging_face_folder, lora
from training.finetuning.adapters import Adapters
from training.initial.build_model import build_on_meta, read, real
from training.workloads import Workload, load
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

SHARD_BYTES = 5 * 10**9
"""Largest size of a weights file in bytes; 5GB is also save_pretrained's default max_shard_size."""
BASE = "TRAINYARD_BASE"


def save(
    folder: Path,
    weights: Weights,
    workload: Workload,
    description: dict[str, Any],
    history: Sequence[Mapping[str, float]],
    adapters: Adapters | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write the artifact; config.json comes last. Every rank that has weights takes part.

    Args:
        adapters: settings of the adapters among the weights; ``description`` names their model as
            ``base``.
        shard_bytes: largest size of a file of weights.

    Raises:
        TrainingError: a rank could not write its files.
    """
    base = description.get("base")
    result = sharded_export.export(folder, weights, workload, adapters, base, shard_bytes)
    if weights.ranks.rank != 0:
        return
    config, ties = result
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in workload.files().items():
        atomic_file.write(folder / name, content)
    lines = "".join(json.dumps(line) + "\n" for line in history)
    atomic_file.write(folder / "history.jsonl", lines)
    document = config | description | ({TIES: ties} if ties else {})
    atomic_file.write(folder / "config.json", json.dumps(document, indent=1))


def add_code(folder: Path, workload: str) -> str:
    """Put ``code/`` and packages.txt into the artifact; return the SHA-256 of packages.txt.

    ``code/`` is what AWS's PyTorch inference toolkit imports: inference.py, the
    training room, and for a workload of the user's own everything that lies beside its package.
    Equal code and packages give equal bytes.
    """
    for name, path in sorted(_code(workload)):
        target = folder / "code" / name
        with atomic_file.storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    python = ".".join(map(str, sys.version_info[:3]))
    lines = "".join(f"{line}\n" for line in [f"# Python {python}", *sorted({*_packages()})])
    atomic_file.write(folder / "packages.txt", lines)
    return hashlib.sha256(lines.encode()).hexdigest()


def _packages() -> Iterator[str]:
    """Yield ``name==version`` of every installed package.

    Only the headers are parsed: ``each.metadata`` would also parse every package's readme.
    """
    for distribution in distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        headers = HeaderParser().parsestr(text.partition("\n\n")[0])
        yield f"{headers['Name'].lower()}=={headers['Version']}"


def _code(workload: str) -> Iterator[tuple[str, Path]]:
    """Yield (name below ``code/``, file) of everything that inference needs."""
    checkout = Path(__file__).parents[2]
    yield "inference.py", checkout / "training/export/inference.py"
    candidates = ("requirements.txt", "steps/requirements.txt")  # in a job, in a checkout
    yield from (("requirements.txt", checkout / n) for n in candidates if (checkout / n).is_file())
    rooms = shipped_files.of_rooms(checkout, [*shipped_files.EVERYWHERE, "training/"])
    for name, path in chain(rooms, shipped_files.list_package_files(workload)):
        if path.suffix == ".py":
            yield name, path


def open_artifact(
    folder: Path, base: Path | None = None
) -> tuple[Workload, nn.Module, dict[str, Any]]:
    """Return (workload, model in evaluation mode on the CPU, description).

    Args:
        base: folder with the model that adapters belong to, if the artifact holds only adapters;
            None: the environment variable TRAINYARD_BASE names it.

    Raises:
        DataError: a file is missing, or the weights are not those of the described model.
    """
    description = _read_description(folder)
    workload = load(description["workload"], description["workload_config"], folder)
    model = build_on_meta(workload.model, 0)
    try:
        if hugging_face_folder.has_weights(folder):
            fill(
                model,
                workload,
                retie_weights(read(model, hugging_face_folder.weights(folder)), description),
            )
        else:
            _fill_adapted(model, workload, folder, base, description)
    except (RuntimeError, KeyError, SafetensorError) as error:
        first = str(error).splitlines()[0]
        raise DataError(f"{folder}: the weights are not those of config.json: {first}") from None
    return workload, real(model).eval(), description


def _read_description(folder: Path) -> dict[str, Any]:
    """Return the artifact's config.json."""
    kinds = (lora.WEIGHTS, hugging_face_folder.INDEX, hugging_face_folder.WEIGHTS)
    weights_file = next(
        (name for name in kinds if (folder / name).is_file()), hugging_face_folder.WEIGHTS
    )
    for name in ("config.json", weights_file):
        if not (folder / name).is_file():
            raise DataError(
                f"{folder / name}: is missing; the training job did not finish its model"
            )
    try:
        description = json.loads((folder / "config.json").read_bytes())
        return description | {n: description[n] for n in ("workload", "workload_config")}
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{folder / 'config.json'}: is damaged; train the model again") from None


def _fill_adapted(
    model: nn.Module,
    workload: Workload,
    folder: Path,
    base: Path | None,
    description: Mapping[str, Any],
) -> None:
    """Write the base's weights into ``model``, with the adapters added.

    Raises:
        DataError: the base is missing, or is another model.
    """
    base_record = description["base"]
    base = base or (Path(os.environ[BASE]) if BASE in os.environ else None)
    if base is None:
        raise DataError(
            f"{folder}: holds adapters alone; their base {base_record['uri']} has to be in a "
            "folder that "
            f"the environment variable {BASE} names, or train with train.adapters.merge"
        )
    if (digest := base_model.sha256(base)) != base_record["sha256"]:
        raise DataError(
            f"the adapters belong to base {base_record['sha256']} ({base_record['uri']}), and the "
            "one that is "
            f"given is {digest}: give that one, or train with train.adapters.merge"
        )
    tensors = base_model.read(workload, description["workload"], base, base_record["uri"])
    fill(model, workload, lora.add_adapters(tensors, *lora.read(folder)))
