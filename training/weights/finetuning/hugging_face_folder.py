"""A folder in Hugging Face's layout: config.json, safetensors, optionally tokenizer.json.

No torch here. Pickled weights are refused: reading them runs code that their author put in.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from trainyard.common.errors import DataError
from trainyard.common.hashes import file_sha256, files_sha256

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
INDEX, SUFFIX = f"{WEIGHTS}.index.json", ".safetensors"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def is_folder(folder: Path) -> bool:
    """Return whether the folder holds a model as plain files, not in an archive."""
    return (folder / CONFIG).is_file()


def description(folder: Path) -> dict[str, Any]:
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


def weights(folder: Path) -> list[Path]:
    """Return the files with the weights: one, or those that the index names.

    Raises:
        DataError: there are no weights, a file is missing, or they are pickles.
    """
    return [folder / name for name in _list_files(folder) if name.endswith(SUFFIX)]


def sha256(folder: Path) -> str:
    """Return one hash of config.json, the weights and the tokenizer, by their names and contents.

    Raises:
        DataError: as ``weights``.
    """
    return files_sha256({name: file_sha256(folder / name) for name in _list_files(folder)})


def select_files(index: Any, file_names: Collection[str]) -> list[str]:
    """Return the names of config.json, the weights and the tokenizer among a folder's files.

    Args:
        index: the content of INDEX, if there is one.

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
    try:
        names = set(index["weight_map"].values())
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{INDEX}: is not an index of weights: {error!r}") from None
    for name in names:
        # A name with a path could lead out of the folder.
        if Path(name).name != name or not name.endswith(SUFFIX):
            raise DataError(f"{INDEX}: names {name!r}; expected safetensors files beside it")
    return names
