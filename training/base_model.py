"""The model that a fine-tuning begins with: its weights, under the names that ``export`` gives.

A model.tar.gz of a train step of ours, or a folder in Hugging Face's layout.
"""

import json
import tarfile
import zlib
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch import Tensor, nn

from training import hugging_face, lora
from training.exported import fill as fill_exported
from training.exported import retied
from training.start import ARCHIVE
from training.workloads import Workload, spec
from trainyard.common.errors import DataError, TrainingError
from trainyard.common.hashes import file_sha256

IGNORED = ("lm_head.weight", "rotary_emb.inv_freq")
"""What a folder may hold besides: a tied embedding once more, and what follows from the config."""


def sha256(folder: Path) -> str:
    """The base's identity.

    Raises:
        DataError: the folder holds no model.
    """
    if (folder / ARCHIVE).is_file():
        return file_sha256(folder / ARCHIVE)
    if hugging_face.is_folder(folder):
        return hugging_face.sha256(folder)
    raise DataError(f"{folder}: holds neither a {ARCHIVE} nor a model in Hugging Face's layout")


def fill(model: nn.Module, workload: Workload, name: str, folder: Path, uri: str | None) -> None:
    """Write the base's weights into ``model``.

    Args:
        name: of the workload.
        uri: where the folder's files come from, for errors.

    Raises:
        DataError: the base is damaged, of another workload, or its weights are another model's.
    """
    try:
        fill_exported(model, workload, read(workload, name, folder, uri))
    except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"start_from: the weights of {uri} are not those of this training's model: "
            f"{' '.join(str(error).split())}; set workload.config as it was there"
        ) from None


def read(workload: Workload, name: str, folder: Path, uri: str | None) -> dict[str, Tensor]:
    """Its weights by exported names.

    Raises:
        DataError: as ``fill``.
        ValueError, KeyError, TypeError, SafetensorError: something is not what it should be.
    """
    if (folder / ARCHIVE).is_file():
        return _read_archive(name, folder / ARCHIVE, uri)
    return _read_folder(workload, name, folder, uri)


def _read_archive(name: str, archive: Path, uri: str | None) -> dict[str, Tensor]:
    files = _members(archive, ("config.json", "model.safetensors", lora.SETTINGS))
    if "config.json" in files and lora.SETTINGS in files and "model.safetensors" not in files:
        raise DataError(
            f"start_from: {uri} holds adapters alone; begin with their base, or with a model that "
            "was trained with train.adapters.merge"
        )
    if missing := [n for n in ("config.json", "model.safetensors") if n not in files]:
        raise DataError(f"{archive}: holds no {missing[0]}; it is no model of a train step of ours")
    description: dict[str, Any] = json.loads(files["config.json"])
    if description["workload"] != name:
        raise DataError(
            f"start_from: {uri} is a model of workload {description['workload']!r}; this training "
            f"is of {name!r}"
        )
    return retied(load(files["model.safetensors"]), description)


def _read_folder(workload: Workload, name: str, folder: Path, uri: str | None) -> dict[str, Tensor]:
    description = hugging_face.description(folder)
    differences = spec(name).base_differences
    if differences is None:
        raise DataError(f"start_from: workload {name} takes no model in Hugging Face's layout")
    try:
        found = differences(workload.packing.config, description)
    except TrainingError as error:
        raise DataError(f"start_from: {uri}: {error}") from None
    if found:
        raise DataError(f"start_from: {uri} is another model: {'; '.join(found)}")
    tensors: dict[str, Tensor] = {}
    for path in hugging_face.weights(folder):
        tensors |= load_file(path)
    _check_all_used(workload, tensors)
    _check_tokenizer(workload, folder)
    return tensors


def _check_all_used(workload: Workload, tensors: dict[str, Tensor]) -> None:
    """A weight that the model has no place for would be lost without a word."""
    used = {*workload.export(workload.restore(tensors))[0]}
    if left := [n for n in tensors if n not in used and not n.endswith(IGNORED)]:
        raise ValueError(f"{left[0]} has no place in it")


def _check_tokenizer(workload: Workload, folder: Path) -> None:
    """Raises: DataError: the data were made with another tokenizer than the base's."""
    mine, theirs = workload.files().get(hugging_face.TOKENIZER), folder / hugging_face.TOKENIZER
    if mine is not None and theirs.is_file() and theirs.read_bytes() != mine:
        raise DataError(
            f"{theirs}: is another tokenizer than that of the shards; set workload.tokenizer to "
            "the base's folder, and shard again"
        )


def _members(archive: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """These files of a tar.gz, and no other: nothing is unpacked onto the disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for entry in tar:
                name = entry.name.removeprefix("./")
                if name in names and (file := tar.extractfile(entry)):
                    found[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None
    return found
