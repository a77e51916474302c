"""A folder in Hugging Face's layout: config.json, safetensors, optionally tokenizer.json.

No torch here. Pickled weights are refused, because reading them runs code that their author put in.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from trainyard.common.errors import DataError
from trainyard.common.hashes import combine_file_hashes, hash_file

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
INDEX, SUFFIX = f"{WEIGHTS}.index.json", ".safetensors"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def has_config(folder: Path) -> bool:
    """Return whether the folder has a config.json, as a model that is not in an archive."""
    return (folder / CONFIG).is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """Return the folder's config.json.

    Raises:
        DataError: it is missing, or not a JSON object.
    """
    try:
        content = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / CONFIG}: cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{folder / CONFIG}: is not a JSON object")
    return content


def has_weights(folder: Path) -> bool:
    """Return whether there is a file of weights, or an index of several files."""
    return (folder / WEIGHTS).is_file() or (folder / INDEX).is_file()


def list_weight_files(folder: Path) -> list[Path]:
    """Return the files with the weights: one, or those that the index names.

    Raises:
        DataError: there are no weights, a file is missing, or they are pickles.
    """
    return [folder / name for name in _list_files(folder) if name.endswith(SUFFIX)]


def hash_folder(folder: Path) -> str:
    """Return one hash of config.json, the weights and the tokenizer, by their names and contents.

    Raises:
        DataError: as ``list_weight_files``.
    """
    return combine_file_hashes({name: hash_file(folder / name) for name in _list_files(folder)})


def select_files(index: Any, file_names: Collection[str]) -> list[str]:
    """Return the names of config.json, the weights and the tokenizer among a folder's files.

    Args:
        index: the content of INDEX, or None if there is none.

    Raises:
        DataError: the folder has no weights, not all of them, or pickles.
    """
    names = {WEIGHTS} if index is None else _read_index(index)
    if missing := sorted(names - {*file_names}):
        if pickles := sorted(name for name in file_names if name.endswith(PICKLE_SUFFIXES)):
            raise DataError(
                f"{pickles[0]}: is a pickle, which runs code when it is read; save the model as "
                f"{WEIGHTS} (save_pretrained with safe_serialization=True)"
            )
        raise DataError(
            f"{missing[0]}: is missing; a model's weights are {WEIGHTS}, or what {INDEX} names"
        )
    return sorted({CONFIG, *names, *({TOKENIZER} & {*file_names})})


def _list_files(folder: Path) -> list[str]:
    index = folder / INDEX
    try:
        content = json.loads(index.read_bytes()) if index.is_file() else None
        return select_files(content, [path.name for path in folder.iterdir()])
    except (ValueError, DataError) as error:
        raise DataError(f"{folder}: {error}") from None


def _read_index(index: Any) -> set[str]:
    """Return the names of the weights' files in an index; raise DataError if it is not valid."""
    try:
        names = set(index["weight_map"].values())
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{INDEX}: is not an index of weights: {error!r}") from None
    for name in names:
        # A name with a path could lead out of the folder.
        if Path(name).name != name or not name.endswith(SUFFIX):
            raise DataError(f"{INDEX}: names {name!r}; expected safetensors files beside it")
    return names


# A model in a channel: in an archive, or file by file; and its identity. No torch here.
#
# model.tar.gz          SageMaker's archive of a training job's /opt/ml/model
# config.json, code/ …  the same files as they were written, with ``train.model_compression: none``
# config.json …         a folder in Hugging Face's layout (``hugging_face_folder``)

ARCHIVE = "model.tar.gz"
TRAINYARD_FILES = ("history.jsonl", "packages.txt")
"""Files that every model of a train step has, and no folder in Hugging Face's layout."""


def find_archive(folder: Path) -> Path | None:
    """Return the path of the folder's model.tar.gz, or None."""
    return archive if (archive := folder / ARCHIVE).is_file() else None


def has_unpacked_model(folder: Path) -> bool:
    """Return whether the folder contains a train step's model as plain files."""
    return find_archive(folder) is None and any(
        (folder / name).is_file() for name in TRAINYARD_FILES
    )


def list_files(folder: Path) -> dict[str, Path]:
    """Return every file of an unpacked model, by its name relative to the folder."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {name: path for name, path in paths.items() if path.is_file()}


def hash_model_files(folder: Path) -> str:
    """Return the model's identity: the hash of its archive, or of all files of a train step's
    model.

    The files include code, because an endpoint runs it. For Hugging Face's layout it is the hash of
    config.json, weights and tokenizer.

    Raises:
        DataError: the folder contains no model.
    """
    if archive := find_archive(folder):
        return hash_file(archive)
    if has_unpacked_model(folder):
        return measure_model(folder)[1]
    if has_config(folder):
        return hash_folder(folder)
    raise DataError(f"{folder}: holds neither a {ARCHIVE} nor the files of a model")


def measure_model(folder: Path) -> tuple[int, str]:
    """Return the size in bytes and the hash of the archive, or of all files.

    A model package records them.
    """
    if archive := find_archive(folder):
        return archive.stat().st_size, hash_file(archive)
    paths = list_files(folder)
    hashes = {name: hash_file(path) for name, path in paths.items()}
    return sum(path.stat().st_size for path in paths.values()), combine_file_hashes(hashes)
