"""A model as it lies in a channel: in an archive, or file by file; its identity. No torch here.

model.tar.gz          SageMaker's archive of a training job's /opt/ml/model
config.json, code/ …  the same files as they were written, with ``train.model_compression: none``
config.json …         a folder in Hugging Face's layout (``hugging_face_folder``)

Apart: recipes and the registry read it.
"""

from pathlib import Path

from training.weights.finetuning import hugging_face_folder
from trainyard.common.errors import DataError
from trainyard.common.hashes import file_sha256, files_sha256

ARCHIVE = "model.tar.gz"
TRAINYARD_FILES = ("history.jsonl", "packages.txt")
"""Files in every model of a train step, and in no folder in Hugging Face's layout."""


def archive_in(folder: Path) -> Path | None:
    """Return the path of the folder's model.tar.gz, or None."""
    return archive if (archive := folder / ARCHIVE).is_file() else None


def is_unpacked(folder: Path) -> bool:
    """Return whether the folder holds a train step's model as plain files."""
    return archive_in(folder) is None and any((folder / name).is_file() for name in TRAINYARD_FILES)


def files(folder: Path) -> dict[str, Path]:
    """Return every file of an unpacked model, by its name below the folder."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {name: path for name, path in paths.items() if path.is_file()}


def sha256(folder: Path) -> str:
    """Return the model's identity: the hash of an archive, or of all files of a train step's model.

    Code is among these, and an endpoint runs it. For Hugging Face's layout it is the hash of
    config.json, weights and tokenizer.

    Raises:
        DataError: the folder holds no model.
    """
    if archive := archive_in(folder):
        return file_sha256(archive)
    if is_unpacked(folder):
        return measure_model(folder)[1]
    if hugging_face_folder.is_folder(folder):
        return hugging_face_folder.sha256(folder)
    raise DataError(f"{folder}: holds neither a {ARCHIVE} nor the files of a model")


def measure_model(folder: Path) -> tuple[int, str]:
    """Return (bytes, hash) of the archive, or of all files: what a model package is bound to."""
    if archive := archive_in(folder):
        return archive.stat().st_size, file_sha256(archive)
    paths = files(folder)
    hashes = {name: file_sha256(path) for name, path in paths.items()}
    return sum(path.stat().st_size for path in paths.values()), files_sha256(hashes)
