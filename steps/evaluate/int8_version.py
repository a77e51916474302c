"""The challenger with int8 weights, as an artifact of its own: what may be registered instead."""

import gzip
import tarfile
from pathlib import Path

from steps.evaluate.model_archive import Source, TrainedModel
from steps.evaluate.model_folder import evidence, files_of
from training.export import int8_weights
from training.export.artifact import open_artifact
from training.finetuning.model_files import ARCHIVE, archive_in, files


def int8_version(folder: Path, output: Path) -> TrainedModel:
    """Write the int8 version of the model in ``folder`` to ``output``, and open it from there.

    ``output`` gets a model.tar.gz, or the model's files, as ``folder`` has the model.

    Raises:
        DataError: a weight is not finite, or none would change.
    """
    is_archived = archive_in(folder) is not None
    unpacked_folder = folder.with_name("int8") if is_archived else output
    int8_weights.write(files_of(folder, folder / "model"), unpacked_folder)
    if is_archived:
        output.mkdir(parents=True, exist_ok=True)
        _pack(unpacked_folder, output / ARCHIVE)
    return TrainedModel(*open_artifact(unpacked_folder), evidence(output), Source(unpacked_folder))


def _pack(folder: Path, archive: Path) -> None:
    """Write the folder's files into an archive: the same bytes for the same files."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as gzip_file,
        tarfile.open(fileobj=gzip_file, mode="w|") as tar,
    ):
        for name, path in files(folder).items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)
