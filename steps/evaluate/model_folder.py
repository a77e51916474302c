"""Read a model in a folder, as an archive or as files: its files, its size and its hash.

This is a separate module because the evaluation of a script has no torch.
"""

import gzip
import tarfile
import zlib
from pathlib import Path

from steps.evaluate.evaluation_document import Artifact
from training.weights.finetuning import hugging_face_folder
from training.weights.finetuning.hugging_face_folder import ARCHIVE
from trainyard.common import safe_unpack
from trainyard.common.errors import DataError


def find_model_folder(folder: Path, target: Path) -> Path:
    """Return the folder with the model's files: ``target`` if they were unpacked from a
    model.tar.gz, or ``folder``.

    Raises:
        DataError: the model is missing, or its archive is damaged.
    """
    if archive := hugging_face_folder.find_archive(folder):
        unpack_model(archive, target)
        return target
    if not folder.is_dir() or not any(folder.iterdir()):
        raise DataError(f"{folder / ARCHIVE}: is missing; the train step left no model")
    return folder


def fingerprint_model(folder: Path) -> Artifact:
    """Return ``bytes`` and ``sha256`` of the model in the folder, as it will be registered."""
    size, digest = hugging_face_folder.measure_model(folder)
    return {"bytes": size, "sha256": digest}


def unpack_model(archive: Path, folder: Path) -> None:
    """Unpack the model's archive into ``folder``.

    Raises:
        DataError: the archive is damaged, or a file in it leads out of the folder.
    """
    try:
        with tarfile.open(archive) as tar:
            safe_unpack.unpack_tar(tar, folder)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None
