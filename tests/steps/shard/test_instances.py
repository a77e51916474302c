"""Several instances, each with a part of the raw data, write the dataset that one writes."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.shard import cluster, exchange, job, raw_objects, survey_pass
from steps.shard.cluster import Cluster
from steps.shard.shard_plan import SPLITS
from tests.steps.shard import plain_counts
from tests.steps.shard.conftest import (
    ARGUMENTS,
    RECORDS,
    addresses,
    container,
    instances,
    lines,
    names,
    parts_of,
    run_all,
)
from tests.steps.shard.corpora import BAD, CASES, texts
from tests.training.trainings import read_manifests
from training.data.dataset import Dataset
from trainyard.common.errors import TrainyardError

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


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # Seven instances in make test: one corpus.
        (name, count)
        if count < 7 or (count == 7 and name == "texts")
        else pytest.param(name, count, marks=pytest.mark.sweep)
        for name in CASES
        for count in (1, 2, 7, 16)
    ],
)
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


def shared(folder: Path, files: Mapping[str, bytes], count: int, *arguments: str) -> Path:
    """Run instances that see all files and write into one folder; the folder."""
    source = container(folder / "raw", files, "", []) / "processing/input/raw"
    places = ["--input", str(source), "--output", str(folder / "out")]
    roots = [container(folder / host, {}, host, names(count)) for host in names(count)]
    run_all(roots, *arguments, *places, base=CASES["images"].arguments)
    return folder / "out"


def test_files_taken_together_on_a_shared_folder_are_read_by_one_instance_each(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(raw_objects, "TOGETHER", 5)
    output = shared(tmp_path, CASES["images"].files, 3)
    assert fingerprints(output) == RECORDED["images"]
    objects = sum(name.endswith("files)") for name in raw(output))
    assert objects == len([n for n in raw(output) if " … " in n]) > 8


@pytest.mark.sweep
@settings(max_examples=4)
@given(data=st.data())
def test_documents_spread_anyhow_over_instances_give_one_dataset(data):
    """Any seed, arrangement in files, number of instances, and size of what is looked at."""
    seed = data.draw(st.integers(0, 10**6))
    by_folder = data.draw(st.sampled_from([[], ["--by_folder"]]))
    files = texts(seed, data.draw(st.integers(1, 6)))
    arguments = [*CASES["texts"].arguments, *by_folder]
    found = []
    for count in (1, data.draw(st.integers(2, 8))):
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(survey_pass, "ROWS", data.draw(st.integers(3, 200)))
            roots = instances(Path(folder), files, count, base=arguments)
            output = together(Path(folder) / "all", roots)
            found.append((fingerprints(output), raw(output), bad(output)))
    assert found[0] == found[1]
    assert found[0][1] == plain_counts.counts(files, unique=True)


def test_an_instance_without_a_file_packs_its_part(tmp_path):
    roots = instances(tmp_path, {"a.jsonl": lines(RECORDS)}, 3)
    output = together(tmp_path / "all", roots)
    packed = [len(one.sources) for one in read_manifests(output / "train").values()]
    assert len(packed) == 3 and sum(map(bool, packed)) == min(3, sum(packed)) > 1
    assert raw(output) == {"a.jsonl": (200, 0, 0)}


def errors(roots: Sequence[Path], *arguments: str, own: Mapping[Path, list[str]] | None = None):
    """Run instances of which some fail; the error of each, "" for those that do not."""
    where = addresses(2)

    def run(root: Path) -> str:
        words = [*ARGUMENTS, *arguments, *(own or {}).get(root, []), "--root", str(root)]
        try:
            job.shard(job.parse([*words, "--addresses", *where, "--patience", "2"]))
        except TrainyardError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(roots)) as pool:
        return list(pool.map(run, roots))


@pytest.fixture
def roots(tmp_path, monkeypatch) -> list[Path]:
    """Two instances' folders, with some files each."""
    monkeypatch.setattr(exchange, "LINGER", 1)
    halves = parts_of(texts(), 2)
    return [
        container(tmp_path / host, part, host, names(2))
        for host, part in zip(names(2), halves, strict=True)
    ]


def test_an_instance_that_is_not_there_is_named(roots, caplog, monkeypatch):
    monkeypatch.setattr(exchange, "INTERVAL", 0.5)
    with caplog.at_level("INFO"):
        [message] = errors(roots[:1], *BAD)
    assert "algo-2 (127.0.0.1:" in message and "silent for 2 s" in message
    assert "algo-1 waits for lists of raw data" in message
    assert "waiting for lists of raw data: algo-2" in caplog.text


def test_an_instance_with_other_settings_is_refused_by_name(roots):
    messages = errors(roots, *BAD, own={roots[1]: ["--shard_mb", "0.002"]})
    assert "algo-2: has other settings, code or hosts than algo-1" in messages[0]
    assert "algo-1: has other settings, code or hosts than algo-2" in messages[1]


def test_what_ends_one_instance_ends_the_others_with_its_words(roots):
    (roots[1] / "processing/input/raw/web/broken.jsonl.gz").write_bytes(b"no gzip")
    messages = errors(roots, *BAD)
    assert messages[1].startswith("web/broken.jsonl.gz: ")
    assert messages[0] == f"algo-2: {messages[1]}"


def test_too_many_bad_records_are_counted_over_all_instances(roots):
    for message in errors(roots):
        assert "2 of 499 records are bad, more than shard.max_bad_share" in message


def test_a_file_on_two_instances_is_refused(roots):
    for root in roots:
        (root / "processing/input/raw/twice.jsonl").write_bytes(lines(RECORDS[:3]))
    for message in errors(roots, *BAD):
        assert "twice.jsonl: algo-1 and algo-2 both have this file" in message
        assert "ShardedByS3Key" in message


def test_an_input_without_a_file_on_any_instance_is_refused(roots):
    for message in errors(roots, *BAD, "--inputs", "books", "code", "web", "news"):
        assert "raw/news: holds no file" in message


def test_a_disk_that_cannot_hold_the_share_is_refused_before_anything_is_read(roots, monkeypatch):
    size = sum(len(content) for content in texts().values())
    usage = type(shutil.disk_usage("/"))(10**9, 10**9, size // 2)
    monkeypatch.setattr("steps.shard.together.shutil.disk_usage", lambda path: usage)
    for message in errors(roots, *BAD):
        assert "expected at least" in message and "raise shard.volume_gb" in message
    assert not [path for root in roots for path in root.rglob("*.arrow")]


def test_the_server_gives_only_records_of_the_run(roots):
    plan = job._plan(job.parse([*ARGUMENTS, "--root", str(roots[0])]), "algo-1")
    (plan.progress).mkdir(parents=True)
    (plan.progress.parent / "secret.json").write_text("{}")
    (plan.progress / "listing.json").write_text("{}")
    cluster = Cluster("algo-1", names(2), addresses(2), 1)
    with exchange.Peers(cluster, plan) as peers:
        question = {**peers.identity, "from": "algo-2"}
        assert peers.answer("listing", question) == b"+{}"
        for stem in ("../secret", "", "absent", "pulled"):
            assert peers.answer(stem, question) == b"-"
        assert peers.answer("listing", question | {"job": "other"})[:1] == b"!"
        assert peers.answer("listing", question | {"from": "../x"})[:1] == b"!"


def test_addresses_are_the_same_on_all_instances_and_differ_by_job(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "resolved", lambda name: "10.0.0.1")
    found = []
    for number, job_name in enumerate(["one", "one", "two"]):
        root = container(tmp_path / f"{number}", {}, f"algo-{number % 2 + 1}", names(2))
        about = json.dumps({"ProcessingJobArn": job_name})
        (root / "config/processingjobconfig.json").write_text(about)
        found.append(cluster.read(root, [], 1))
    assert found[0].addresses == found[1].addresses != found[2].addresses
    assert [one.rpartition(":")[0] for one in found[0].addresses] == names(2)
    assert found[0].number == 0 and found[1].number == 1
    monkeypatch.setattr(cluster, "resolved", lambda name: None)
    local = cluster.read(tmp_path / "0", [], 1).addresses
    assert len(set(local)) == 2 and all(one.startswith("127.0.0.1:") for one in local)
