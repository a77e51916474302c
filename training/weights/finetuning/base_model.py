"""The model that fine-tuning starts from: its weights, under the names that ``export`` gives.

It is a train step's model, as a model.tar.gz or as its files, or a folder in Hugging Face's layout.
"""

import json
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from training.export.weight_location import fill_weights as fill_exported
from training.export.weight_location import retie_weights
from training.weights.finetuning import hugging_face_folder, lora
from training.weights.finetuning.hugging_face_folder import ARCHIVE
from training.weights.initial import build_model
from training.workloads import Workload, load_spec
from trainyard.common.errors import DataError, TrainingError

IGNORED_WEIGHTS = ("lm_head.weight", "rotary_emb.inv_freq")
"""Ends of the names of weights that a folder may contain and that are not used: a tied
embedding's copy, and values derived from the config.
"""


def fill_model(
    model: nn.Module,
    workload: Workload,
    name: str,
    folder: Path,
    uri: str | None,
    *,
    asked_as_folder: bool = False,
) -> None:
    """Write the base model's weights into ``model``.

    Args:
        name: name of the workload.
        uri: where the folder's files come from, for messages.
        asked_as_folder: whether the recipe calls it a folder in Hugging Face's layout; if so, its
            config.json must agree with the settings, even for a train step's model.

    Raises:
        DataError: the base is damaged, belongs to another workload, or its weights belong to
            another model.
    """
    try:
        weights = read_weights(workload, name, folder, uri, model, asked_as_folder=asked_as_folder)
        fill_exported(model, workload, weights)
    except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"start_from: the weights of {uri} are not those of this training's model: "
            f"{' '.join(str(error).split())}; set workload.config as for that model"
        ) from None


def read_weights(
    workload: Workload,
    name: str,
    folder: Path,
    uri: str | None,
    model: nn.Module | None = None,
    *,
    asked_as_folder: bool = False,
) -> dict[str, Tensor]:
    """Return the base model's weights by exported names.

    For a ``model`` on meta, weights in files are read later, by each rank its part. Those in an
    archive are read now, because it must be unpacked from its beginning.

    Raises:
        DataError: as ``fill_model``.
        ValueError, KeyError, TypeError, SafetensorError: the weights or settings do not fit.
    """
    if (folder / ARCHIVE).is_file():
        return _read_archive(name, folder / ARCHIVE, uri)
    if hugging_face_folder.has_unpacked_model(folder):
        return _read_unpacked_model(workload, name, folder, uri, model, asked_as_folder)
    return _read_hugging_face_folder(workload, name, folder, uri, model)


def _read_archive(name: str, archive: Path, uri: str | None) -> dict[str, Tensor]:
    """Return the weights of a train step's model.tar.gz."""
    files = _read_members(archive)
    description = _read_description(
        name, archive, [*files], files.get(hugging_face_folder.CONFIG), uri
    )
    parts = [load(files[file]) for file in files if file.endswith(hugging_face_folder.SUFFIX)]
    weights = {name: tensor for part in parts for name, tensor in part.items()}
    return retie_weights(weights, description)


def _read_unpacked_model(
    workload: Workload,
    name: str,
    folder: Path,
    uri: str | None,
    model: nn.Module | None,
    asked_as_folder: bool,
) -> dict[str, Tensor]:
    """Return the weights of a train step's model that is unpacked."""
    config = folder / hugging_face_folder.CONFIG
    content = config.read_bytes() if config.is_file() else None
    description = _read_description(
        name, folder, [*hugging_face_folder.list_files(folder)], content, uri
    )
    if asked_as_folder:
        _check_same_model(workload, name, description, uri)
    return retie_weights(
        build_model.read_tensors(model, hugging_face_folder.list_weight_files(folder)), description
    )


def _read_description(
    name: str, path: Path, files: Collection[str], config: bytes | None, uri: str | None
) -> dict[str, Any]:
    """Return the config.json of a train step's model.

    Args:
        files: names of the model's files.
        config: content of config.json, if there is one.

    Raises:
        DataError: the files are not a complete model, or it belongs to another workload.
    """
    # Adapters are stored in a separate folder, and are not a whole model's weights.
    weighs = any(file.endswith(hugging_face_folder.SUFFIX) and "/" not in file for file in files)
    if config is not None and lora.SETTINGS in files and not weighs:
        raise DataError(
            f"start_from: {uri} contains only adapters; start from their base, or from a model "
            "that was trained with train.adapters.merge"
        )
    if config is None or not weighs:
        missing = hugging_face_folder.CONFIG if config is None else hugging_face_folder.WEIGHTS
        raise DataError(f"{path}: contains no {missing}; it is not a model of a train step")
    description: dict[str, Any] = json.loads(config)
    if description["workload"] != name:
        raise DataError(
            f"start_from: {uri} is a model of workload {description['workload']!r}; this training "
            f"has {name!r}"
        )
    return description


def _check_same_model(
    workload: Workload, name: str, description: dict[str, Any], uri: str | None
) -> None:
    """Check that config.json and the settings describe the same model.

    Raises:
        DataError: they describe different models.
    """
    differences = load_spec(name).base_differences
    if differences is None:
        raise DataError(f"start_from: workload {name} accepts no model in Hugging Face's layout")
    try:
        mismatches = differences(workload.packing.config, description)
    except TrainingError as error:
        raise DataError(f"start_from: {uri}: {error}") from None
    if mismatches:
        raise DataError(f"start_from: {uri} is a different model: {'; '.join(mismatches)}")


def _read_hugging_face_folder(
    workload: Workload, name: str, folder: Path, uri: str | None, model: nn.Module | None
) -> dict[str, Tensor]:
    """Return the weights of a folder in Hugging Face's layout; check its settings and tokenizer."""
    description = hugging_face_folder.read_config(folder)
    _check_same_model(workload, name, description, uri)
    tensors = build_model.read_tensors(model, hugging_face_folder.list_weight_files(folder))
    with build_model.record_changes(model):
        used = {*workload.export(workload.restore(tensors))[0]}
        # A weight that does not exist in the model would be lost silently.
        if leftover := [n for n in tensors if n not in used and not n.endswith(IGNORED_WEIGHTS)]:
            raise ValueError(f"it has no weight {leftover[0]}")
    own_content = workload.files().get(hugging_face_folder.TOKENIZER)
    base_path = folder / hugging_face_folder.TOKENIZER
    if own_content is not None and base_path.is_file() and base_path.read_bytes() != own_content:
        raise DataError(
            f"{base_path}: differs from the tokenizer of the shards; set workload.tokenizer to "
            "the base's folder, and shard again"
        )
    return tensors


def _read_members(archive: Path) -> dict[str, bytes]:
    """Read weights and settings from a tar.gz; nothing is unpacked onto the disk.

    Raises:
        DataError: the archive cannot be read.
    """
    contents: dict[str, bytes] = {}
    try:
        # As a stream, because a compressed archive can only be read from its beginning.
        with tarfile.open(archive, "r|gz") as tar:
            for entry in tar:
                name = entry.name.removeprefix("./")
                weights = name.endswith(hugging_face_folder.SUFFIX) and "/" not in name
                is_needed = weights or name in (hugging_face_folder.CONFIG, lora.SETTINGS)
                if is_needed and (file := tar.extractfile(entry)):
                    contents[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None
    return contents
