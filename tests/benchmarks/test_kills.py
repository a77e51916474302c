"""The kill harness: the sharding job survives a dozen runs of it, and it would see a fault."""

import random
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.kills import instances, trial
from benchmarks.kills.__main__ import figures
from benchmarks.kills.job import Contents, Job, write_corpus
from benchmarks.kills.trial import Moment, Reference, limit_files, tear

pytestmark = pytest.mark.long

RUNS = 7


def contents(**samples: str) -> Contents:
    counted = {split: Counter(row.encode() for row in rows) for split, rows in samples.items()}
    return Contents({split: "".join(sorted(rows)) for split, rows in samples.items()}, counted)


def test_wrong_missing_and_duplicated_samples_are_told_apart():
    expected = contents(train="aabc", test="d")
    assert expected.differences(expected) == {
        "wrong": 0, "missing": 0, "duplicated": 0, "fingerprints": 0
    }  # fmt: skip
    found = expected.differences(contents(train="abbcx", test="d"))
    assert found == {"wrong": 1, "missing": 1, "duplicated": 1, "fingerprints": 1}
    assert expected.differences(contents(train="aabc", test=""))["missing"] == 1


def test_a_torn_file_is_one_that_no_manifest_names(tmp_path: Path):
    job = Job(tmp_path, tmp_path, 1)
    (job.output / "train").mkdir(parents=True)
    named, other = job.output / "train/named-00000.npy", job.output / "train/other-00000.npy"
    for path in (named, other):
        path.write_bytes(bytes(100))
    (job.output / "train/manifest-algo-1.json").write_text('{"file": ["named-00000.npy"]}')
    for number in range(20):
        assert tear(job, random.Random(number)) == "train/other-00000.npy"
        assert other.read_bytes() != bytes(100) and named.read_bytes() == bytes(100)
        other.write_bytes(bytes(100))


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[Path, Reference]:
    folder = tmp_path_factory.mktemp("kills")
    write_corpus(folder / "raw", seed=0)
    return folder, Reference.measure(folder / "raw", folder / "undisturbed")


@pytest.mark.slow
def test_no_sample_is_wrong_missing_or_duplicated_after_kills(measured):
    folder, reference = measured
    trials = [trial.run(number, 1, folder / "raw", folder / f"{number}", reference, most=1)
              for number in range(RUNS)]  # fmt: skip
    found = figures(reference, trials, 1)
    assert found["failed_runs"] == 0, [one for one in trials if one.failed]
    assert set(found["differences"].values()) == {0} and found["torn_files"] > 2
    assert sum(found["samples"].values()) > 10_000
    assert len(found["disturbances"]) >= 3 and len(found["found_on_disk"]) >= 2


@pytest.mark.slow
def test_a_file_that_may_not_grow_ends_the_job_with_one_message(measured):
    folder, reference = measured
    job = Job(folder / "raw", folder / "limited", 2)
    assert limit_files(job, Moment(random.Random(0), 1, 1, 1)) == ""
    assert "File too large" in job.log()
    assert job.run()[0] == 0
    assert not any(reference.contents.differences(Contents.of(job.output)).values())


@pytest.mark.parametrize("runs", [pytest.param(30, marks=pytest.mark.sweep)])
def test_of_several_instances_one_is_killed_and_started_again(tmp_path, runs):
    write_corpus(tmp_path / "raw", 0)
    parts = instances.divide(tmp_path / "raw", tmp_path / "parts", 3)
    like = instances.Reference.measure(parts, tmp_path / "undisturbed")
    for number in range(runs):
        one = instances.trial(number, 1, parts, tmp_path / f"{number}", like)
        assert one.disturbed and not one.failed, one


def test_an_instance_started_again_reads_nothing_twice(tmp_path):
    write_corpus(tmp_path / "raw", 0)
    parts = instances.divide(tmp_path / "raw", tmp_path / "parts", 2)
    cluster = instances.Cluster(parts, tmp_path / "run", 1)
    [first, _] = cluster.instances
    record = first.output / "progress/algo-1/reads.json"
    while not record.is_file():
        assert cluster.running[0].poll() is None, first.log()
    cluster.kill(0, 0)
    assert cluster.end() == []
    assert "3 raw objects are done already: checking their sorted runs" in first.log()
    assert " raw objects, 1 processes" not in first.log()
