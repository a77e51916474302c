"""A model's archive, model.tar.gz: its evidence, and its files. Without torch."""

import gzip
import tarfile
import zlib
from pathlib import Path

from steps.evaluate.document import Artifact
from trainyard.common.errors import DataError
from trainyard.common.hashes import file_sha256


def archive_in(folder: Path) -> Path:
    """The folder's model.tar.gz.

    Raises:
        DataError: there is none.
    """
    archive = folder / "model.tar.gz"
    if not archive.is_file():
        raise DataError(f"{archive}: is missing; the train step left no model")
    return archive


def evidence(archive: Path) -> Artifact:
    """``bytes`` and ``sha256`` of the archive as it is registered."""
    return {"bytes": archive.stat().st_size, "sha256": file_sha256(archive)}


def unpack(archive: Path, folder: Path) -> None:
    """Put the model's files into ``folder``.

    Raises:
        DataError: the archive is damaged, or a file of it would lie elsewhere.
    """
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None
