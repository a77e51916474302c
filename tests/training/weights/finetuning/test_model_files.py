"""A model in a channel: an archive, a train step's files, a Hugging Face folder."""

import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from steps.evaluate.model_folder import fingerprint_model
from steps.evaluate.score_rows import open_trained_model
from tests.training.export.test_sharded_export import SETTINGS, write
from training.weights.finetuning import base_model, hugging_face_folder
from training.weights.starting_weights import StartFrom, open_start
from training.workloads import load_workload
from trainyard.common.errors import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Train a model that is split into several files."""
    return write(tmp_path_factory.mktemp("model"))


def archive_folder(folder: Path, target: Path) -> Path:
    target.mkdir()
    with tarfile.open(target / "model.tar.gz", "w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    return target


def test_every_file_belongs_to_its_identity(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert hugging_face_folder.has_unpacked_model(copy)
    assert (
        fingerprint_model(copy) == fingerprint_model(folder)
        and fingerprint_model(copy)["bytes"] > 10_000
    )
    assert fingerprint_model(copy)["sha256"] == hugging_face_folder.hash_model_files(copy)
    (copy / "code").mkdir()
    (copy / "code/inference.py").write_text("")
    assert fingerprint_model(copy)["sha256"] != fingerprint_model(folder)["sha256"]
    again = hugging_face_folder.hash_model_files(copy)
    (copy / "code/inference.py").rename(copy / "code/other.py")
    assert hugging_face_folder.hash_model_files(copy) != again


def test_its_files_and_its_archive_are_the_same_model(folder, tmp_path):
    archive = archive_folder(folder, tmp_path / "archive")
    workload = load_workload("language_model", SETTINGS)
    both = [
        base_model.read_weights(workload, "language_model", one, "s3://x")
        for one in (folder, archive)
    ]
    assert both[0].keys() == both[1].keys()
    assert all(torch.equal(both[0][name], tensor) for name, tensor in both[1].items())
    assert len({path for path in folder.glob("model-*.safetensors")}) > 3
    one, other = (open_trained_model(one, "language_model") for one in (folder, archive))
    tokens = torch.randint(0, 257, (2, 8))
    assert torch.equal(one.model(tokens), other.model(tokens))
    assert one.artifact == fingerprint_model(folder) and other.artifact == fingerprint_model(
        archive
    )
    assert not (folder / "model").exists()


def test_a_training_begins_with_either(folder):
    uri = "s3://bucket/run/output/model"
    asked = StartFrom(model=f"{uri}/")
    assert asked.uri == StartFrom(model=uri).uri == f"{uri}/"
    assert StartFrom(model=f"{uri}.tar.gz").uri == f"{uri}.tar.gz"
    assert open_start(asked, folder).sha256 == fingerprint_model(folder)["sha256"]


def test_a_file_that_the_index_names_and_that_is_gone_is_named(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    lost = next(copy.glob("model-00002-*"))
    lost.unlink()
    with pytest.raises(DataError, match=lost.name):
        open_trained_model(copy, "language_model")
    workload = load_workload("language_model", SETTINGS)
    with pytest.raises(DataError, match=lost.name):
        base_model.read_weights(workload, "language_model", copy, "s3://x")


def test_a_folder_of_hugging_faces_is_what_it_was(folder, tmp_path):
    for path in (folder / "config.json", *folder.glob("model*")):
        shutil.copy(path, tmp_path)
    assert not hugging_face_folder.has_unpacked_model(tmp_path)
    assert hugging_face_folder.hash_model_files(tmp_path) == hugging_face_folder.hash_folder(
        tmp_path
    )
    found = [
        name for file in hugging_face_folder.list_weight_files(tmp_path) for name in load_file(file)
    ]
    workload = load_workload("language_model", SETTINGS)
    assert len(found) == len(base_model.read_weights(workload, "language_model", folder, None))
