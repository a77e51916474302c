"""A model in Hugging Face's layout, as a folder: config.json, safetensors, perhaps tokenizer.json.

No torch here. Pickled weights are refused: reading one runs what its author put into it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from trainyard.common.errors import DataError
from trainyard.common.hashes import file_sha256

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
INDEX = f"{WEIGHTS}.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def is_folder(folder: Path) -> bool:
    """Whether a model lies here by itself, and not in an archive."""
    return (folder / CONFIG).is_file()


def description(folder: Path) -> dict[str, Any]:
    """Its config.json.

    Raises:
        DataError: it is missing, or no JSON object.
    """
    try:
        found = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / CONFIG}: cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{folder / CONFIG}: is no JSON object")
    return found


def weights(folder: Path) -> list[Path]:
    """The files with its weights: one, or those that the index names.

    Raises:
        DataError: there are none, one is missing, or they are pickles.
    """
    index = folder / INDEX
    names = {WEIGHTS} if not index.is_file() else _indexed(index)
    missing = sorted(name for name in names if not (folder / name).is_file())
    if not missing:
        return [folder / name for name in sorted(names)]
    if pickled := sorted(p.name for p in folder.iterdir() if p.suffix in PICKLED):
        raise DataError(
            f"{folder / pickled[0]}: is a pickle, which runs code when it is read; save the model "
            f"as {WEIGHTS} (save_pretrained with safe_serialization=True)"
        )
    raise DataError(
        f"{folder / missing[0]}: is missing; a model's weights are {WEIGHTS} or {INDEX}"
    )


def sha256(folder: Path) -> str:
    """One hash for config.json, the weights and the tokenizer, by their names and contents."""
    files = [folder / CONFIG, *weights(folder)]
    if (tokenizer := folder / TOKENIZER).is_file():
        files.append(tokenizer)
    lines = "".join(f"{file_sha256(path)}  {path.name}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def _indexed(index: Path) -> set[str]:
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{index}: is no index of weights: {error!r}") from None
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise DataError(f"{index}: names {name!r}; expected safetensors files beside it")
    return names
