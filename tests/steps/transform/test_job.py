"""The transform job: every record comes out once, with an endpoint's answer or a reason."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from steps.transform import job
from tests.training.workloads.tabular.tables import SETTINGS, dataset, table
from training.export import artifact
from training.export.inference import ServedModel, load_served_model
from training.export.weight_location import LocalWeights
from training.workloads import load_workload
from trainyard.common.errors import DataError

LANGUAGE = {"context_length": 8, "layers": 1, "heads": 2, "dim": 16}


def model(root: Path, name: str, settings: dict, learned: Path | None = None) -> ServedModel:
    """Put an artifact where the step gets it."""
    workload = load_workload(name, settings)
    if learned:
        workload.fit(dataset(learned, settings, {"a": table(300, 1)}))
    torch.manual_seed(1)
    folder = root / "processing/input/model"
    description = {"workload": name, "workload_config": settings}
    artifact.save_artifact(
        folder, LocalWeights(workload.model().state_dict()), workload, description, []
    )
    return load_served_model(folder)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tabular model, and 70 records without a label in two files; three of them are bad."""
    model(tmp_path, "tabular", SETTINGS, tmp_path / "train")
    folder = tmp_path / "processing/input/records"
    (folder / "june").mkdir(parents=True)
    rows = table(40, 3).drop(columns="delay")
    rows.insert(0, "order", range(100, 140))
    text = rows.to_csv(index=False).splitlines()
    text[6] = "105,red,S,heavy,1"
    (folder / "june/a.csv").write_text("\n".join(text) + "\n")
    lines = [json.dumps(row.dropna().to_dict()) for _, row in table(30, 4).iterrows()]
    lines[3:3], lines[20] = ["{", "[]"], lines[20][:-1] + ', "weight": 1}'
    (folder / "b.jsonl").write_text("\n".join(lines))
    return tmp_path


def run_transform(root: Path, *more: str) -> dict[str, bytes]:
    """Run the job; return the files of both outputs."""
    options = job.parse_arguments(
        ["--root", str(root), "--max_bad_share", "0.1", "--keep", "order", *more]
    )
    job.transform_files(options)
    return outputs(root)


def outputs(root: Path) -> dict[str, bytes]:
    folder = root / "processing/output"
    paths = [path for name in ("scores", "quarantine") for path in (folder / name).rglob("*")]
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(paths) if p.is_file()}


def lines(content: bytes) -> list[dict]:
    return [json.loads(line) for line in content.splitlines()]


def test_every_record_has_an_endpoints_answer_or_a_reason(root: Path):
    found = run_transform(root)
    served = load_served_model(root / "processing/input/model")
    scores = lines(found["scores/june/a.csv.jsonl"]) + lines(found["scores/b.jsonl.jsonl"])
    for one in scores:
        assert one["answer"] == served.answer({"record": one["input"]})  # bit for bit
    assert [one["kept"]["order"] for one in scores[:6]] == [
        "100", "101", "102", "103", "104", "106",
    ]  # fmt: skip
    assert [one["line"] for one in scores[:6]] == [2, 3, 4, 5, 6, 8]
    frame = pd.DataFrame([one["input"] for one in scores[:39]])
    assert frame["weight"].tolist() == table(40, 3).drop(index=5)["weight"].tolist()
    bad = [one for name, text in found.items() if name.endswith(".jsonl") and "quar" in name
           for one in lines(text)]  # fmt: skip
    assert sorted((one["source"], one["line"]) for one in bad) == [
        ("b.jsonl", 4), ("b.jsonl", 5), ("b.jsonl", 21), ("june/a.csv", 7),
    ]  # fmt: skip
    assert any("'heavy', expected a number" in one["reason"] for one in bad)
    summary = json.loads(found["quarantine/summary-algo-1.json"])
    assert (summary["records"], summary["scored"], summary["quarantined"]) == (72, 68, 4)
    assert summary["objects"]["june/a.csv"]["records"] == 40


def test_a_killed_job_leaves_no_file_that_a_retry_could_take_for_whole(root: Path, monkeypatch):
    whole = run_transform(root)
    (root / "processing/output").rename(root / "whole")
    monkeypatch.setattr(job, "PART", 8)
    score_part, scored = job.Scoring._score_batch, []

    class Killed(BaseException):
        pass

    def score_three(scoring, raw, batch):
        if len(scored) == 3:
            raise Killed
        scored.append(raw)
        return score_part(scoring, raw, batch)

    with monkeypatch.context() as patch:
        patch.setattr(job.Scoring, "_score_batch", score_three)
        with pytest.raises(Killed):
            run_transform(root)
    assert {raw.name for raw in scored} and not {*outputs(root)} & {
        "quarantine/summary-algo-1.json"
    }
    assert all(content == whole[name] for name, content in outputs(root).items())
    assert run_transform(root) == whole


def test_a_text_that_cannot_be_scored_is_quarantined_with_its_reason(tmp_path: Path):
    served = model(tmp_path, "language_model", LANGUAGE)
    folder = tmp_path / "processing/input/records"
    folder.mkdir()
    (folder / "a.txt").write_text("def f(x):\nq\n    return größer\n")
    found = run_transform(tmp_path, "--max_bad_share", "0.5")
    first, third = lines(found["scores/a.txt.jsonl"])
    assert first["answer"] == served.answer({"text": "def f(x):"})
    assert third["input"] == {"text": "    return größer"}
    assert (third["kept"], third["line"]) == ({"order": None}, 3)
    [name] = [name for name in found if name.startswith("quarantine/") and "summary" not in name]
    [bad] = lines(found[name])
    assert (bad["line"], bad["excerpt"]) == (2, "order: None, text: 'q'")
    assert "no text whose bytes could be predicted" in bad["reason"]


def test_too_many_bad_records_none_or_a_suffix_that_nothing_reads_end_the_job(root: Path):
    options = job.parse_arguments(["--root", str(root), "--max_bad_share", "0.01"])
    with pytest.raises(DataError, match=r"4 of 72 records are bad, more than transform.max_bad_sh"):
        job.transform_files(options)
    shutil.rmtree(root / "processing/output")
    unread = root / "processing/input/records/z.xlsx"  # the smallest: read last
    unread.write_bytes(b"")
    with pytest.raises(DataError, match=r"^z\.xlsx: raw data with this suffix cannot be read"):
        run_transform(root)
    assert outputs(root) == {}
    for path in (root / "processing/input/records").rglob("*.*"):
        path.unlink()
    with pytest.raises(DataError, match="0 files in the records; upload some"):
        job.transform_files(options)
