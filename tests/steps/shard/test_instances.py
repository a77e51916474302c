"""Several instances, each with a part of the raw data, write the dataset that one writes."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from steps.shard import survey_pass
from steps.shard.shard_plan import SPLITS
from tests.steps.shard import plain_counts
from tests.steps.shard.conftest import instances, names
from tests.steps.shard.corpora import CASES
from training.data.dataset import Dataset

pytestmark = pytest.mark.long

RECORDED = json.loads(Path(__file__).with_name("recorded_fingerprints.json").read_text())
"""Case → split → fingerprint, as one instance wrote them when every instance read all raw data."""


def together(folder: Path, roots: Sequence[Path]) -> Path:
    """What the instances uploaded, in one folder, as S3 has it; no file comes twice."""
    for root in roots:
        for path in sorted((root / "processing/output").rglob("*")):
            place = folder / path.relative_to(root / "processing/output")
            if path.is_file() and "progress" not in path.parts:
                assert not place.exists(), place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
    return folder


def fingerprints(output: Path) -> dict[str, str]:
    found = {}
    for split in SPLITS:
        data = Dataset(output / split)
        data.check()
        found[split] = data.fingerprint
    return found


def raw(output: Path) -> dict[str, tuple[int, int, int]]:
    """Name → (records, duplicates, quarantined), the same in all manifests."""
    told = Dataset(output / "train").merged.raw
    columns = told["records"], told["duplicates"], told["quarantined"]
    return dict(zip(told["name"], zip(*columns, strict=True), strict=True))


def bad(output: Path) -> list[tuple[str, int]]:
    paths = (output / "quarantine").glob("*.jsonl")
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return sorted((one["source"], one["line"]) for one in found)


@pytest.mark.parametrize("count", [1, 2, 7, 16])
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_instances_gives_the_recorded_dataset(tmp_path, name, count, monkeypatch):
    case = CASES[name]
    monkeypatch.setattr(survey_pass, "ROWS", 31)
    roots = instances(tmp_path, case.files, count, base=case.arguments)
    output = together(tmp_path / "all", roots)
    assert fingerprints(output) == RECORDED[name]
    assert len(bad(output)) == len(set(bad(output)))
    summaries = {(output / f"quarantine/summary-{host}.json").read_bytes() for host in names(count)}
    assert len({json.dumps(json.loads(one), sort_keys=True) for one in summaries}) == 1
    if "image" in name:
        broken = {f"{folder}/x/broken.png" for folder in ("first", "second")}
        assert {source for source, _ in bad(output)} >= broken
        assert len(raw(output)) == 4
        return
    assert raw(output) == plain_counts.counts(case.files, "stay" not in name)
    assert set(bad(output)) == plain_counts.bad_lines(case.files)
