"""Images from files to scores: the same whatever layout they came in."""

import base64
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from steps.shard import job
from tests.training.trainings import check_shares, losses
from tests.training.workloads.image.pictures import (
    CONFIG,
    LABELS,
    archive,
    folder,
    json_lines,
    parquet,
    picture,
)
from training.data.dataset import Dataset
from training.data.loader import Preparation
from training.export.inference import WARM, ServedModel
from training.tools.contract_tests.scoring_rules import join_blocks
from training.workloads import load_packing, load_workload
from training.workloads.image.config import ImageConfig
from training.workloads.image.workload import Classes, ResNet
from trainyard.common.errors import DataError, TrainingError

pytestmark = pytest.mark.long

COUNT = 60


def run_shard_job(root: Path, files: dict[str, bytes], *arguments: str, **columns: str) -> Path:
    """Run the shard job on these files; return the folder of its splits."""
    for name, content in files.items():
        (root / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "raw" / name).write_bytes(content)
    (root / "ml").mkdir()
    told = {"workload": "image", "workload_config": json.dumps(CONFIG | columns), "processes": 1}
    told |= {"validation_share": 0.2, "test_share": 0.3, "shard_mb": 0.02}
    told |= {"input": root / "raw", "output": root / "out", "root": root / "ml"}
    job.main([*(part for n, v in told.items() for part in (f"--{n}", str(v))), *arguments])
    return root / "out"


@pytest.fixture(scope="module")
def splits(tmp_path_factory) -> Path:
    return run_shard_job(tmp_path_factory.mktemp("splits"), folder(COUNT))


@pytest.fixture(scope="module")
def workload(splits: Path):
    found = load_workload("image", CONFIG)
    found.fit(Dataset(splits / "train"))
    return found


@pytest.fixture
def model(workload):
    torch.manual_seed(0)
    return workload.model()


def fingerprints(out: Path) -> list[str]:
    return [Dataset(out / name).fingerprint for name in ("train", "validation", "test")]


def test_the_dataset_is_the_same_however_images_are_spread(splits: Path, tmp_path: Path):
    files = folder(COUNT)
    halves = dict(list(files.items())[::2]), dict(list(files.items())[1::2])
    layouts = {
        "parquet": {"a.parquet": parquet(files)},
        "tables and files": {"a.jsonl": json_lines(halves[0]), **halves[1]},
        "twice": {"a.parquet": parquet(files), **files},
    }
    for name, layout in layouts.items():
        assert fingerprints(run_shard_job(tmp_path / name, layout)) == fingerprints(splits), name
    tars = {"x/1.tar": archive(halves[1]), "x/2.tar.gz": gzip.compress(archive(halves[0]))}
    out = run_shard_job(tmp_path / "tar", tars, image="jpg;png", label="cls")
    assert fingerprints(out) == fingerprints(splits)


def test_images_that_cannot_be_decoded_are_quarantined_by_their_names(tmp_path: Path):
    files = folder(20)
    files["dark/0000.png"] = files["dark/0000.png"][:300]
    out = run_shard_job(tmp_path, files, "--max_bad_share", "0.1")
    [path] = (path for path in out.glob("quarantine/*.jsonl"))
    told = json.loads(path.read_text())
    assert told["source"] == "dark/0000.png" and told["line"] == 1
    assert told["reason"].startswith("column 'bytes' is an image that cannot be decoded")
    with pytest.raises(SystemExit):
        run_shard_job(tmp_path / "strict", files)


def slices(out: Path, *names: str) -> tuple[set[str], ...]:
    """Return the values of these slices among the scores of the test split."""
    found = load_workload("image", CONFIG)
    found.fit(Dataset(out / "train"))
    columns = join_blocks(list(found.scores(found.model(), Dataset(out / "test"), names)))
    return tuple(set(columns[f"slice.{name}"]) for name in names)


def test_by_folder_an_evaluation_is_sliced_by_source(tmp_path: Path):
    files = {
        f"camera{n % 2}/{n}.parquet": parquet({f"{n % 3}/x.png": picture(n)}) for n in range(30)
    }
    sources, labels = slices(run_shard_job(tmp_path, files, "--by_folder"), "source", "label")
    assert sources == {"camera0", "camera1"} and labels <= {"0", "1", "2"}


def test_of_several_inputs_the_folders_below_them_are_the_labels(tmp_path: Path):
    files = {f"camera{n % 2}/{LABELS[n // 2 % 2]}/{n}.png": picture(n) for n in range(40)}
    out = run_shard_job(tmp_path, files, "--inputs", "camera0", "camera1")
    assert slices(out, "source", "label") == ({"camera0", "camera1"}, {*LABELS})


def test_labels_that_are_numbers_are_ordered_by_them():
    parts = [{"labels": {"10": 1, "9": 2}}, {"labels": {"9": 1, "0": 5}}]
    assert Classes.from_statistics(parts).names == ("0", "9", "10")
    assert Classes.from_statistics(parts).counts == (5, 3, 1)
    assert Classes.from_statistics([{"labels": {"b": 1, "10": 1}}]).names == ("10", "b")
    with pytest.raises(TrainingError, match="have 1 labels .a.: at least two are needed"):
        Classes.from_statistics([{"labels": {"a": 3}}])


def test_a_label_of_the_test_split_alone_is_named(splits, workload, model, monkeypatch):
    test = Dataset(splits / "test")
    monkeypatch.setattr(Dataset, "statistics", [{"labels": {"dark": 1, "red": 1}}])
    with pytest.raises(DataError, match="labels that no training image has: red"):
        next(workload.scores(model, test))


def test_an_image_of_an_unknown_label_counts_for_nothing(splits, workload, model):
    samples = Dataset(splits / "train").read(range(6))
    samples["label"][2:] = 7
    batch = Preparation.from_workload(workload).make_batch(samples)
    two = Preparation.from_workload(workload).make_batch(Dataset(splits / "train").read(range(2)))
    assert workload.units(batch) == 2
    loss = workload.loss(model(*workload.inputs(batch)), batch)
    assert loss.item() == pytest.approx(workload.loss(model(*workload.inputs(two)), two).item())


def test_scores_are_the_losses_of_the_images(splits, workload, model):
    test = Dataset(splits / "test")
    blocks = list(workload.scores(model, test, ("label",)))
    batch = Preparation.from_workload(workload).make_batch(test.read(range(len(test))))
    expected = workload.loss(model(*workload.inputs(batch)), batch) / workload.units(batch)
    found = workload.metrics(blocks)
    assert found["log_loss"]["value"] == pytest.approx(expected.item(), rel=1e-5)
    hits = model(*workload.inputs(batch)).argmax(1) == batch["target"]
    assert found["accuracy"]["value"] == pytest.approx(hits.float().mean().item())
    rows, examples = (join_blocks(list(b))["example"] for b in (blocks, workload.examples(test)))
    assert (rows == examples).all() and len(set(rows.tolist())) == len(test)


def test_the_rows_of_shares_are_those_of_the_whole(splits, workload, model, monkeypatch):
    monkeypatch.setattr("training.workloads.image.workload.AT_ONCE", 3)
    check_shares(workload, model.eval(), Dataset(splits / "test"), ["label"])


def test_baselines_are_scored_row_by_row(splits, workload, model):
    train, test = Dataset(splits / "train"), Dataset(splits / "test")
    scored = workload.baseline_scores(train, test, 1000)
    found = {name: list(blocks) for name, blocks in scored.items()}
    rows = [block["example"].tolist() for block in workload.scores(model, test)]
    for blocks in found.values():
        assert [block["example"].tolist() for block in blocks] == rows
    values = {name: workload.metrics(blocks) for name, blocks in found.items()}
    assert values["logistic_regression"]["accuracy"]["value"] == 1  # light and dark
    assert values["majority"]["log_loss"]["value"] == pytest.approx(np.log(2), abs=0.1)


def test_a_position_decides_how_an_image_is_seen_and_without_one_its_middle_is(splits, workload):
    samples = Dataset(splits / "train").read([0] * 8)
    ready = Preparation.from_workload(workload, threads=2)
    seen = [image.numpy().tobytes() for image in ready.make_batch(samples, np.arange(8))["pixels"]]
    assert len(set(seen)) == 8
    later = ready.make_batch(samples, np.arange(4, 12))["pixels"]
    assert [image.numpy().tobytes() for image in later][:4] == seen[4:]
    assert len({image.numpy().tobytes() for image in ready.make_batch(samples)["pixels"]}) == 1


def test_a_training_resumed_in_mid_epoch_is_bitwise_the_undisturbed_one(splits, tmp_path, train):
    for name in ("whole", "stopped"):
        (tmp_path / name / "input/data").mkdir(parents=True)
        for split in ("train", "validation"):
            os.symlink(splits / split, tmp_path / name / "input/data" / split)
    settings = {"workload": "image", "workload_config": json.dumps(CONFIG), "micro_batch": 4}
    whole = train(tmp_path / "whole", **settings)
    stopped = train(tmp_path / "stopped", **settings)
    assert 5 * 8 % len(Dataset(splits / "train")) > 0, "step 5 must lie within an epoch"
    [newest] = stopped.glob("checkpoints/*/step-00000010")
    next(newest.glob("*.safetensors")).write_bytes(b"torn")
    train(stopped, **settings | {"loader_threads": 3})
    assert losses(whole) == losses(stopped) and len(losses(whole)) == 10
    model = "model/model.safetensors"
    assert (whole / model).read_bytes() == (stopped / model).read_bytes()


def test_requests_are_answered_with_a_class_and_its_probability(workload, model):
    request = {"image": base64.b64encode(picture(3)).decode()}
    [found] = workload.answers(model, [request])
    assert set(found["probabilities"]) == {"dark", "light"}
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    assert found["probabilities"][found["label"]] >= 0.5


def test_a_model_of_images_can_be_warmed_up(workload, model, monkeypatch):
    found: list = []
    whole = ServedModel.answer_all
    noted = lambda self, requests: found.extend(whole(self, requests)) or found[-1:]  # noqa: E731
    monkeypatch.setattr(ServedModel, "answer_all", noted)
    ServedModel(workload, model).warm_up()
    assert len(found) == WARM and all(set(one) == {"label", "probabilities"} for one in found)


@pytest.mark.parametrize(("request_", "message"), [
    ({"picture": ""}, "expected .*image"),
    ({"image": 5}, "expected .*image"),
    ({"image": "QUI"}, "image: is 'QUI', expected base64"),
    ({"image": "QUI="}, "image: is not an image: its first bytes are b'AB'"),
])  # fmt: skip
def test_a_request_without_an_image_is_refused(workload, model, request_, message):
    with pytest.raises(DataError, match=message):
        workload.answers(model, [request_])


def test_what_was_learned_travels_with_the_model(workload, tmp_path: Path):
    (tmp_path / "classes.json").write_bytes(workload.files()["classes.json"])
    again = load_workload("image", CONFIG, tmp_path)
    assert again.classes == workload.classes
    (tmp_path / "classes.json").write_text("{")
    with pytest.raises(DataError, match="classes.json: is damaged"):
        load_workload("image", CONFIG, tmp_path)
    with pytest.raises(TrainingError, match="classes.json: is missing"):
        _ = load_workload("image", CONFIG).classes


def test_the_operations_of_a_convolution_are_counted(workload, model):
    """A 3x3 convolution over 16 x 16 pixels: two operations per product, times three."""
    stem, block, head = 3 * 9 * 16, 2 * 16 * 9 * 16, 2 * 16
    assert workload.flops(model) == 3 * 2 * (256 * (stem + block) + head)


@pytest.mark.parametrize(("settings", "message"), [
    ({"image": "x", "label": "x"}, "the same column"),
    ({"crop_area": (0.5, 0.1)}, "swap them"),
    ({"size": 8, "stem": "large", "depths": [1, 1, 1]}, "leave nothing of 8 pixels"),
    ({"width": 20}, "multiple of 16"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_named(settings, message):
    with pytest.raises(TrainingError, match=message):
        load_packing("image", CONFIG | settings)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_behind_frozen_weights_has_the_gradients_that_it_had(kind: torch.dtype):
    torch.manual_seed(0)
    model = ResNet(ImageConfig(**CONFIG), classes=3)
    pixels = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        with torch.autocast("cpu", kind, enabled=kind != torch.float32):
            model(pixels).float().square().sum().backward()
        found = {name: one.grad for name, one in model.named_parameters()}
        return {name: one.clone() for name, one in found.items() if one is not None}

    before = gradients()
    model.stem.requires_grad_(False)  # torch's own GroupNorm ends the process here
    after = gradients()
    assert {*before} - {*after} == {"stem.weight"}
    for name, one in after.items():
        torch.testing.assert_close(one, before[name], rtol=0.05, atol=0.05 * one.abs().max().item())
