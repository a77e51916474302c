"""The shard job: records to splits, what happens to bad ones, and to bad input."""

import gzip
import json
import os
import re
from pathlib import Path

import pytest

from steps.shard import job
from steps.shard.record_hashes import compute_split
from steps.shard.shard_plan import SPLITS
from tests.steps.shard.conftest import ARGUMENTS, RECORDS, as_csv, as_parquet, container, lines
from tests.training.trainings import read_manifests
from training.data import mixture
from training.data.dataset import Dataset
from training.data.manifest import Raw
from trainyard.common.process import count_cores

pytestmark = pytest.mark.long


def texts(folder: Path) -> list[str]:
    """The documents of a split, sorted."""
    dataset, streams = Dataset(folder), {}
    for passage in dataset.stream(1):
        tokens = passage.samples["tokens"][0]
        stream = streams.setdefault(int(passage.sources[0]), [tokens[0]])
        stream.extend(tokens[1:])
    text = "\0".join(
        bytes(t if t < 256 else 0 for t in stream).decode() for stream in streams.values()
    )
    return sorted(document for document in text.split("\0") if document)


def raw_objects(root: Path) -> list[Raw]:
    """Return the raw objects in the manifests, which must all be alike."""
    told = [
        manifest.raw
        for split in SPLITS
        for manifest in read_manifests(root / "processing/output" / split).values()
    ]
    assert all(one == told[0] for one in told)
    return told[0]


def count_kept_records(root: Path) -> int:
    return sum(Dataset(root / "processing/output" / split).records for split in SPLITS)


def alone(root: Path, files: dict[str, bytes], *arguments: str) -> Path:
    """Run the only instance of the job with these arguments, in its container's folders."""
    container(root, files, "algo-1", ["algo-1"])
    job.main([*arguments, "--root", str(root)])
    return root


KEYLESS = [word for word in ARGUMENTS if word not in ("--key", "key")]


def read_quarantine(root: Path) -> list[dict]:
    files = sorted((root / "processing/output/quarantine").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    "files",
    [{"a.jsonl": lines(RECORDS)}, {"b.csv": as_csv(RECORDS)}, {"c.jsonl": lines(RECORDS[::-1])}],
)
def test_every_record_is_in_the_split_of_its_key_and_in_no_other(shard, files):
    root = shard(files)
    for split in SPLITS:
        expected = [r["text"] for r in RECORDS if compute_split(r["key"], 0.2, 0.2) == split]
        assert texts(root / "processing/output" / split) == sorted(expected)
        assert Dataset(root / "processing/output" / split).records == len(expected) > 10
    assert raw_objects(root) == [Raw(name=next(iter(files)), records=200)]


USERS = """
from training.workloads import Column
from training.workloads.simple import Simple


class Workload(Simple):
    columns = {"user": Column("number", dtype="int64")}
"""


def test_users_that_a_float_would_merge_stay_apart(shard, tmp_path, monkeypatch):
    """From the raw file to the shard; also where equal records are left out."""
    (tmp_path / "own_users").mkdir()
    (tmp_path / "own_users/work.py").write_text(USERS)
    monkeypatch.syspath_prepend(tmp_path)
    users = [2**53 + n for n in range(40)]
    files = {
        "a.jsonl": b'{"user": 5.5}\n' + lines({"user": user} for user in users),
        "b.csv": as_csv([{"user": user, "n": 1} for user in users]),
        "c.parquet": as_parquet([{"user": user} for user in users]),
    }
    workload = ["--workload", "own_users.work", "--workload_config", "{}", "--key", "user"]
    root = shard(files, *workload, "--unique", "user", "--max_bad_share", "0.2")
    splits = [Dataset(root / "processing/output" / split) for split in SPLITS]
    found = [n for split in splits for n in split.read(range(len(split)))["user"].tolist()]
    assert sorted(found) == sorted(users)
    [bad] = read_quarantine(root)
    assert (bad["line"], "user" in bad["reason"]) == (1, True)
    assert "is 5.5, expected a whole number from" in bad["reason"]


def test_without_a_key_the_record_decides(tmp_path):
    """The key column is not even read, and equal records stand in one split. Plain text has none:
    every line is a record.
    """
    many = [{"text": record["text"]} for record in RECORDS for _ in range(3)]
    root = alone(tmp_path / "root", {"a.jsonl": lines(many)}, *KEYLESS, "--unique")
    assert count_kept_records(root) == 600
    found = [set(texts(root / "processing/output" / split)) for split in SPLITS]
    assert set.union(*found) == {record["text"] for record in RECORDS}
    assert sum(map(len, found)) == len(RECORDS) and all(found)
    text = "".join(record["text"] for record in RECORDS).encode()
    files = {"a.txt": text[:3000], "b.txt.gz": gzip.compress(text[3000:])}
    read = count_kept_records(alone(tmp_path / "plain", files, *KEYLESS))
    assert read == text[:3000].count(b"\n") + 1 + text[3000:].count(b"\n")


@pytest.mark.parametrize(
    ("arguments", "stay"),
    [
        ([], 200),  # the workload's identity: the text
        (["--unique"], 600),
        (["--unique", "key", "text"], 400),
        (["--unique", "other"], 3),  # a column that only this option names
    ],
    ids=["the workload's", "none", "two columns", "another column"],
)
def test_of_duplicates_one_stays(shard, arguments, stay):
    again = [{**record, "other": 1} for record in RECORDS]
    renamed = [{**record, "key": f"copy of {record['key']}", "other": 2} for record in RECORDS]
    first = [{**record, "other": 0} for record in RECORDS]
    files = {"a.jsonl": lines([*first, *again]), "b.jsonl": lines(renamed)}
    root = shard(files, *arguments)
    assert count_kept_records(root) == stay
    assert sum(one.duplicates for one in raw_objects(root)) == 600 - stay
    if not arguments:
        found = [texts(root / "processing/output" / split) for split in SPLITS]
        assert sorted(sum(found, [])) == sorted(record["text"] for record in RECORDS)


def test_shards_are_as_large_as_asked_for_and_those_of_another_job_are_refused(shard, failure):
    root = shard({"a.jsonl": lines(RECORDS)})
    [manifest] = read_manifests(root / "processing/output/train").values()
    assert len(manifest.shards) > 3
    header = 128  # of an .npy file, in bytes
    assert all(500 <= size - header <= 1000 for size in manifest.shards.bytes)
    own = root / "processing/output/test/manifest-algo-1.json"
    own.with_name("manifest-other.json").write_bytes(own.read_bytes())
    message = failure({"a.jsonl": lines(RECORDS)})
    assert "test/manifest-other.json: was written by another job" in message


def test_folders_behind_links_are_read_and_names_that_begin_with_a_dot_or_underscore_are_not(
    shard, tmp_path, caplog
):
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    (tmp_path / "elsewhere/deep/b.jsonl").write_bytes(lines(RECORDS[100:]))
    root = container(tmp_path / "algo-1-of-1", {}, "algo-1", ["algo-1"])
    (root / "processing/input/raw/linked").symlink_to(tmp_path / "elsewhere")
    hidden = {"_SUCCESS": b"", ".a.jsonl.crc": b"crc", "_temporary/0/b.jsonl": b"half"}
    with caplog.at_level("INFO"):
        shard({"a.jsonl": lines(RECORDS[:100])} | hidden)
    assert [one.name for one in raw_objects(root)] == ["a.jsonl", "linked/deep/b.jsonl"]
    assert count_kept_records(root) == 200
    assert "3 files whose names begin with . or _" in caplog.text


@pytest.mark.parametrize(("make", "expected"), [
    (lambda path: path.symlink_to(path.parent), "a/odd: is a link to "),
    (lambda path: path.symlink_to(path.parents[1]), "a/odd: is a link to "),
    (lambda path: path.symlink_to("nothing"), "a/odd: is a link that leads nowhere"),
    (os.mkfifo, "a/odd: is neither file nor folder"),
], ids=["its folder", "the input", "nothing", "pipe"])  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name_unless_it_is_hidden(
    shard, failure, tmp_path, make, expected
):
    root = container(tmp_path / "algo-1-of-1", {"a/a.jsonl": lines(RECORDS)}, "algo-1", ["algo-1"])
    odd = root / "processing/input/raw/a/odd"
    make(odd)
    assert expected in failure({})
    odd.rename(odd.with_name("_odd"))
    shard({})


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_number_that_no_sample_can_hold_makes_its_record_bad(tmp_path, kind):
    """The largest float32 fits, and infinity is a missing value: both records are good."""
    numbers = [float(row) for row in range(2000)]
    numbers[1234], numbers[7], numbers[8] = 1e39, 3.4028235677973362e38, float("inf")
    rows = [{"label": row % 2, "size": number} for row, number in enumerate(numbers)]
    content = {"csv": as_csv, "jsonl": lines, "parquet": as_parquet}[kind](rows)
    arguments = ["--workload", "tabular", "--workload_config",
                 json.dumps({"numbers": ["size"], "label": "label"})]  # fmt: skip
    root = alone(tmp_path / "root", {f"a.{kind}": content}, *arguments)
    [one] = read_quarantine(root)
    line = 1236 if kind == "csv" else 1235  # below its header
    assert (one["source"], one["line"]) == (f"a.{kind}", line)
    assert one["reason"].startswith("column 'size' is 1e+39, too large for the samples")
    assert "size: 1e+39" in one["excerpt"]
    assert sum(Dataset(root / "processing/output" / split).records for split in SPLITS) == 1999
    with pytest.raises(SystemExit):
        alone(root, {}, *arguments, "--max_bad_share", "0.0001")
    assert f"a.{kind}: 1 of 2,000 (line {line}: column 'size' is 1e+39" in (
        (root / "output/message").read_text()
    )


@pytest.mark.parametrize("arguments", [[], ["--unique", "key", "text"]], ids=["", "unique"])
def test_bad_records_are_quarantined_with_line_and_reason(shard, arguments):
    """Without a key, too, whoever else reads that column; an empty file has none."""
    bad = b"{not json\n" + b"\n  \n" + lines([{"key": 3.5, "text": ""}, {"key": "k"}])
    keyless = lines([{"text": "no key"}, {"key": None, "text": "null"}])
    files = {"a.jsonl": lines(RECORDS) + bad, "bad.jsonl": keyless, "empty.jsonl": b""}
    root = shard(files, "--max_bad_share", "0.03", *arguments)
    assert [(one.name, one.records, one.quarantined) for one in raw_objects(root)] == [
        ("a.jsonl", 203, 3), ("bad.jsonl", 2, 2), ("empty.jsonl", 0, 0)
    ]  # fmt: skip
    assert count_kept_records(root) == 200
    found = sorted(read_quarantine(root), key=lambda one: (one["source"], one["line"]))
    assert [(one["source"], one["line"]) for one in found] == [
        ("a.jsonl", 201), ("a.jsonl", 204), ("a.jsonl", 205), ("bad.jsonl", 1), ("bad.jsonl", 2)
    ]  # fmt: skip
    assert all(one["reason"] for one in found) and "{not json" in found[0]["excerpt"]
    summary = root / "processing/output/quarantine/summary-algo-1.json"
    assert json.loads(summary.read_bytes())["quarantined"] == 5


def test_too_many_bad_records_end_the_job_and_name_the_files(failure, tmp_path):
    some = b"{not json\n" * 2
    files = {"a.jsonl": lines(RECORDS) + some, "b.jsonl": some + lines(RECORDS) + some}
    message = failure(files | {"c.jsonl": lines(RECORDS)})
    assert message.startswith("6 of 606 records are bad, more than shard.max_bad_share 0.1000%")
    assert "b.jsonl: 4 of 204 (line 1: " in message and "a.jsonl: 2 of 202 (line 201" in message
    assert message.index("b.jsonl") < message.index("a.jsonl") and "c.jsonl" not in message
    assert not list(tmp_path.rglob("manifest-*.json"))


def test_a_file_that_is_mostly_bad_is_given_up_early(failure, tmp_path):
    content = b"no json".ljust(399) + b"\n"
    message = failure({"a.jsonl": content * 25_000}, "--max_bad_share", "0.4")
    assert message.startswith("a.jsonl: ") and "records are bad (line 1: " in message
    given_up = int(message.partition(" of its first ")[2].partition(" ")[0].replace(",", ""))
    assert 10_000 <= given_up < 25_000
    assert not list((tmp_path / "algo-1-of-1/processing/output/quarantine").iterdir())


def test_all_damaged_files_are_named_up_to_ten(failure):
    whole = gzip.compress(lines(RECORDS))
    files = {f"{number:02}.jsonl.gz": whole[: -20 - number] for number in range(13)}
    message = failure(files | {"good.jsonl": lines(RECORDS)})
    assert sum(f"{number:02}.jsonl.gz: " in message for number in range(13)) == 10
    assert message.endswith("; and 3 more")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "0 files in the raw input; upload data under data.input"),
        ({"a.jsonl.gz": b"plain text"}, "a.jsonl.gz: "),
        ({"a.csv": b"x,y\n1,2\n"}, "a.csv: "),
    ],
)
def test_bad_input_ends_the_job_with_one_message(failure, tmp_path, files, expected):
    message = failure(files)
    assert message.startswith(expected)
    assert (tmp_path / "algo-1-of-1/output/message").read_text() == message
    assert not list(tmp_path.rglob("manifest-*.json"))


def test_what_cannot_be_begun_ends_the_job_before_anything_is_read(failure, tmp_path):
    files = {"a.jsonl": lines(RECORDS), "notes.docx": b"x", "more/b.xls": b"x", "_c.xls": b"x"}
    message = failure(files)
    assert message.startswith("more/b.xls and 1 more files: raw data with this suffix cannot")
    inside = tmp_path / "algo-1-of-1/processing/input/raw/out"
    assert "is inside the input folder" in failure(files, "--output", str(inside))
    output = tmp_path / "algo-1-of-1/processing/output"
    assert [path for path in output.rglob("*") if path.is_file()] == []


def test_a_name_that_is_no_utf8_is_refused(shard, failure, tmp_path):
    root = container(tmp_path / "algo-1-of-1", {}, "algo-1", ["algo-1"])
    name = os.fsdecode(b"caf\xe9.jsonl")
    (root / "processing/input/raw" / name).write_bytes(lines(RECORDS))
    assert "'caf\\udce9.jsonl': the file's name is not UTF-8" in failure({})


def test_wrong_settings_are_named(failure, shard, capsys):
    files = {"a.jsonl": lines(RECORDS)}
    assert "is not JSON" in failure(files, "--workload_config", "{")
    assert "workload_config.layers: is 0" in failure(files, "--workload_config", '{"layers": 0}')
    for wrong in (["--shard_mb", "0"], ["--test_share", "1.5"], ["--processes", "0"]):
        with pytest.raises(SystemExit):
            shard(files, *wrong)
        assert wrong[0] in capsys.readouterr().err


def test_the_job_loads_neither_torch_nor_the_sdk_and_waits_without_pandas(run_python):
    code = (
        "import sys, steps.shard.job; light = sorted({'pandas', 'pyarrow'} & set(sys.modules));"
        "import steps.shard.pack_unit, steps.shard.read_object;"
        "import training.workloads.language_model.scores;"
        "print(light, sorted({'torch', 'sagemaker', 'boto3', 'pipelines'} & set(sys.modules)))"
    )
    assert run_python("-c", code).stdout.strip() == "[] []"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs to restrict the cores")
def test_only_cores_that_the_process_may_use_are_counted():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert count_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


MIXED = {
    "web/a.jsonl": lines(RECORDS[:120]),
    "web/deep/b.jsonl": lines(RECORDS[120:150]),
    "code/c.jsonl": lines(RECORDS[140:200]),
}
"""Two inputs, which share ten records."""


def test_a_sample_holds_records_of_one_input_and_a_record_of_two_stays_once(shard):
    root = shard(MIXED, "--inputs", "web", "code")
    assert count_kept_records(root) == 200
    assert {one.name: one.duplicates for one in raw_objects(root)} == {
        "code/c.jsonl": 0, "web/a.jsonl": 0, "web/deep/b.jsonl": 10,
    }  # fmt: skip
    for split in SPLITS:
        data = Dataset(root / "processing/output" / split)
        text: dict[str, str] = {}
        for passage in data.stream(1):
            name = data.get_source_name(int(passage.sources[0])).split("/")[0]
            tokens = passage.samples["tokens"][0][1:].tolist()
            text[name] = text.get(name, "") + "".join(map(chr, tokens))
        numbers = {n: [int(k) for k in re.findall(r"number (\d+) of", t)] for n, t in text.items()}
        assert max(numbers["web"]) < 140 <= min(numbers["code"])


def test_the_dataset_does_not_depend_on_how_an_inputs_records_are_spread(shard, tmp_path):
    mixed = {"web/x.csv": as_csv(RECORDS[149:79:-1]), "web/y/z.parquet": as_parquet(RECORDS[:100])}
    mixed |= {"code/c.jsonl": lines(RECORDS[140:170]), "code/d.jsonl": lines(RECORDS[150:200])}
    datasets = []
    for number, files in enumerate((MIXED, mixed)):
        root = alone(tmp_path / f"{number}", files, *ARGUMENTS, "--inputs", "web", "code")
        datasets.append(Dataset(root / "processing/output/train"))
    assert datasets[0].fingerprint == datasets[1].fingerprint
    found = [mixture.collect_inputs(data.manifests) for data in datasets]
    assert {name: one.fingerprint for name, one in found[0].items()} == {
        name: one.fingerprint for name, one in found[1].items()
    }


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"web/a.jsonl": lines(RECORDS)}, "raw/code: holds no file; there has to be a folder"),
        (MIXED | {"c.jsonl": lines(RECORDS)}, "raw/c.jsonl: is not one of data.inputs; there has"),
        ({"web/a.jsonl": lines(RECORDS[:50]), "code/c.jsonl": lines(RECORDS)},
         "input web: none of its records is kept: its files are empty, or each record"),
    ],
)  # fmt: skip
def test_an_input_without_data_of_its_own_ends_the_job(failure, files, said):
    assert said in failure(files, "--inputs", "web", "code")
