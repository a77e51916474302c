"""The evaluate job: scores of every example, a champion beside the challenger, and leaks."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.evaluate import job as evaluate_job
from steps.evaluate import leaked_examples as leakage_module
from steps.evaluate import score_table as scores_module
from steps.evaluate.evaluation_document import Evaluation
from steps.evaluate.leaked_examples import count_leakage
from steps.evaluate.score_table import Scores, write_scores
from tests.documents import keys_that_differ
from tests.steps.test_jobs import RAGGED, TOYS, shard, train
from training.data.dataset import Dataset
from trainyard.common.errors import DataError
from trainyard.common.safe_unpack import unpack_tar

pytestmark = pytest.mark.long

ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/toys/1"


@pytest.fixture(scope="module", autouse=True)
def toys():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOYS))
        yield


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Create SageMaker's processing/input for the job: train, test, model; and no champion."""
    root = tmp_path_factory.mktemp("trained")
    shard(root, RAGGED)
    train(root, RAGGED)
    folder = root / "evaluate/processing/input"
    for split in ("train", "test"):
        shutil.copytree(root / split, folder / split)
    archive(folder / "model", root / "train-job/model")
    (folder / "champion").mkdir()
    (folder / "champion/no-champion.json").write_text("{}")
    return folder


def archive(into: Path, files: Path) -> None:
    into.mkdir()
    with tarfile.open(into / "model.tar.gz", "w:gz") as tar:
        tar.add(files, ".")


def run_evaluation(inputs: Path, tmp_path: Path, *arguments: str, change=lambda champion: None):
    """(evaluation.json, folder of scores) with this champion."""
    root = tmp_path / "job"
    shutil.copytree(inputs, root / "processing/input", symlinks=True)
    change(root / "processing/input/champion")
    evaluate_job.main([*arguments, "--root", str(root)])
    output = root / "processing/output"
    return json.loads((output / "evaluation/evaluation.json").read_bytes()), output / "scores"


def crown(inputs: Path):
    """The very model of the challenger as the champion."""

    def change(champion: Path) -> None:
        (champion / "no-champion.json").unlink()
        shutil.copy(inputs / "model/model.tar.gz", champion)

    return change


def test_challenger_and_champion_are_scored_on_the_same_rows(inputs, tmp_path):
    evaluation, folder = run_evaluation(inputs, tmp_path, "--champion", ARN, change=crown(inputs))
    ours, theirs = (pq.read_table(folder / f"{n}.parquet") for n in ("challenger", "champion"))
    assert ours.equals(theirs)
    assert not keys_that_differ(evaluation, Evaluation)
    metrics, artifact = evaluation["metrics"], evaluation["artifact"]
    champion = {"arn": ARN, "metrics": metrics, "artifact": artifact, "error": None}
    assert evaluation["champion"] == champion
    assert len(ours) == evaluation["dataset"]["test_samples"]
    value = sum(ours["loss.sum"].to_pylist()) / sum(ours["loss.weight"].to_pylist())
    assert metrics["loss"]["value"] == pytest.approx(value, rel=1e-12)
    described = json.loads(theirs.schema.metadata[b"trainyard"])
    assert described == {
        "format": 1, "ranges": {}, "model": "champion", "champion": ARN,
        "test_fingerprint": evaluation["dataset"]["test_fingerprint"],
        "train_fingerprint": evaluation["dataset"]["train_fingerprint"],
        "artifact_sha256": artifact["sha256"], "metrics": {"loss": "lower"},
        "groups_ordered": False,
    }  # fmt: skip
    assert artifact["bytes"] == (inputs / "model/model.tar.gz").stat().st_size
    assert len(artifact["sha256"]) == 64
    test, train = (
        [row.tobytes() for row in d.read(np.arange(len(d)))["numbers"]]
        for d in (Dataset(inputs / "test"), Dataset(inputs / "train"))
    )
    leaked = [row for row in test if row in {*train}]
    assert leaked and evaluation["leakage"] == {
        "examples": len(leaked), "groups": len({*leaked}),
        "checked_examples": len(test), "checked_groups": len({*test}),
    }  # fmt: skip
    latency = evaluation["latency"]
    assert 0 < latency["p50_ms"] <= latency["p95_ms"] and latency["samples"] >= 100
    assert latency["device"] == "cpu" or "NVIDIA" in latency["device"]
    assert latency["threads"] == 1


@pytest.mark.parametrize("arn", ["none", "unresolved"])
def test_without_a_champion_there_are_no_scores_of_one(inputs, tmp_path, arn):
    evaluation, folder = run_evaluation(inputs, tmp_path, "--champion", arn)
    expected = {"arn": arn, "metrics": {}, "artifact": None, "error": None}
    assert evaluation["champion"] == expected
    assert [path.name for path in folder.iterdir()] == ["challenger.parquet"]
    described = json.loads(pq.read_schema(folder / "challenger.parquet").metadata[b"trainyard"])
    assert described["champion"] is None


def remove_no_champion(champion: Path) -> None:
    (champion / "no-champion.json").unlink()


def torn(champion: Path) -> None:
    remove_no_champion(champion)
    content = (champion.parent / "model/model.tar.gz").read_bytes()
    (champion / "model.tar.gz").write_bytes(content[: len(content) // 2])


def described_as(**changes):
    """The challenger's model, whose config.json says something else."""

    def change(champion: Path) -> None:
        remove_no_champion(champion)
        with tarfile.open(champion.parent / "model/model.tar.gz") as tar:
            unpack_tar(tar, champion / "files")
        config = json.loads((champion / "files/config.json").read_bytes())
        text = json.dumps(config | changes) if changes else "{"
        (champion / "files/config.json").write_text(text)
        with tarfile.open(champion / "model.tar.gz", "w:gz") as tar:
            tar.add(champion / "files", ".")

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda champion: None, "ChampionModelUri names no folder"),
        (remove_no_champion, "model.tar.gz: is missing"),
        (torn, "cannot be unpacked"),
        (described_as(), "config.json: is missing or damaged"),
        (described_as(workload="tabular"), "of workload 'tabular'; expected 'toys.ragged'"),
        (described_as(workload=["x"]), "of workload ['x']; expected"),
        (described_as(workload_config={"dropout": 7}), "workload_config.dropout: is 7"),
    ],
    ids=["only an ARN", "vanished", "torn", "no JSON", "other workload", "nonsense", "settings"],
)  # fmt: skip
def test_a_champion_that_cannot_be_compared_is_a_reason_and_no_failure(
    inputs, tmp_path, change, expected
):
    evaluation, folder = run_evaluation(inputs, tmp_path, "--champion", ARN, change=change)
    error = evaluation["champion"]["error"]
    assert error.startswith(f"champion {ARN} cannot be compared: ") and expected in error
    assert [path.name for path in folder.iterdir()] == ["challenger.parquet"]


def test_a_champion_of_other_samples_is_a_reason(inputs, tmp_path, monkeypatch):
    from toys.ragged.packing import Packing

    known = Packing.__init__

    def other(self, config, assets):
        known(self, config, assets)
        if assets.parent.name == "champion":
            self.info = {"kind": "of another tokenizer"}

    monkeypatch.setattr(Packing, "__init__", other)
    evaluation, _ = run_evaluation(inputs, tmp_path, "--champion", ARN, change=crown(inputs))
    assert "made for {'kind': 'of another tokenizer'}" in evaluation["champion"]["error"]


ids = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 5)), max_size=60)


@given(train=ids, test=ids, size=st.integers(1, 20), grouped=st.booleans())
def test_leaks_are_those_of_a_set(train, test, size, grouped):
    def blocks(rows):
        columns = np.array(rows, np.int64).reshape(-1, 2)
        for start in range(0, len(rows), size):
            part = columns[start : start + size]
            block = {"example": part[:, 0].copy(), "group": part[:, 1].copy()}
            yield block if grouped else {"example": block["example"]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leakage_module, "PIECE", 7)
        patch.setattr(leakage_module, "PARTS", 3)
        found = count_leakage(blocks(train), blocks(test))
    known, place = {row[0] for row in train}, int(grouped)
    groups = {row[place] for row in test}
    assert found == {
        "examples": sum(row[0] in known for row in test),
        "groups": len(groups & {row[place] for row in train}),
        "checked_examples": len(test),
        "checked_groups": len(groups),
    }


HEADER = {"metrics": {"loss": "lower", "auc": "higher"}}


@settings(max_examples=20)
@given(sizes=st.lists(st.integers(0, 25), max_size=8), group=st.integers(1, 12))
def test_a_file_of_scores_gives_back_its_rows_in_row_groups_of_bounded_size(
    tmp_path_factory, sizes, group
):
    path = tmp_path_factory.mktemp("scores") / "scores/challenger.parquet"
    count = sum(sizes)
    columns = {
        "example": np.arange(count), "group": np.arange(count) // 3,
        "slice.kind": np.array([f"kind {n % 4}" for n in range(count)], object),
        "loss.sum": np.arange(count) / 7, "loss.weight": np.ones(count),
    }  # fmt: skip
    parts = {name: np.split(column, np.cumsum(sizes)) for name, column in columns.items()}
    blocks = [{n: part[i] for n, part in parts.items()} for i in range(len(sizes))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores_module, "GROUP", group)
        if not count:
            with pytest.raises(DataError, match="no example to score"):
                write_scores(path, blocks, HEADER)
            assert not list(path.parent.iterdir())
            return
        write_scores(path, blocks, HEADER)
        assert rewritten(path, blocks) == path.read_bytes()
    with pq.ParquetFile(path) as file:
        rows = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        table = file.read()
    assert set(rows[:-1]) <= {group} and sum(rows) == count
    assert json.loads(table.schema.metadata[b"trainyard"])["metrics"] == {"loss": "lower"}
    assert table["slice.kind"].to_pylist() == columns["slice.kind"].tolist()
    reread = np.concatenate([block["loss.sum"] for block in Scores(path)])
    assert reread.tolist() == columns["loss.sum"].tolist()
    assert "slice.kind" not in next(iter(Scores(path)))


def rewritten(path: Path, blocks: list) -> bytes:
    """The file of the same rows in other blocks, which were left in a file between."""
    part, again = path.with_name("part"), path.with_name("again.parquet")
    whole = {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}
    halves = [slice(0, len(whole["example"]) // 2), slice(len(whole["example"]) // 2, None)]
    scores_module.write_part(part, [{n: c[h] for n, c in whole.items()} for h in halves])
    write_scores(again, scores_module.read_part(part), HEADER)
    return again.read_bytes()


def test_a_failure_in_the_middle_leaves_no_file(tmp_path):
    def blocks():
        yield {"example": np.arange(3), "group": np.arange(3)}
        raise DataError("a shard is damaged")

    with pytest.raises(DataError, match="a shard is damaged"):
        write_scores(tmp_path / "scores.parquet", blocks(), HEADER)
    assert not list(tmp_path.iterdir())
