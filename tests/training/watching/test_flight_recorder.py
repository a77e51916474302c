"""The flight recorder's settings under each torch; and torch's own tool reads its files."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from tests.training import worlds
from tests.training.torches import since
from training.strategies.ranks import join_group
from training.watching import flight_recorder

OLD = {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
NEW = {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"}


@pytest.fixture
def cuda(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize(
    ("release", "names"), [("2.6.0+cu126", OLD | NEW), ("2.10.0", NEW), ("2.14.0a0+git1", NEW)]
)
def test_nccl_is_asked_by_the_names_that_its_torch_knows(
    cuda, monkeypatch, tmp_path: Path, release: str, names: set[str]
):
    monkeypatch.setattr(torch, "__version__", release)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    asked: dict[str, str] = {}
    flight_recorder.record_collectives(tmp_path / "kept", asked)
    assert {*asked} == names | {"TORCH_NCCL_DUMP_ON_TIMEOUT"}
    assert asked["TORCH_FR_DUMP_TEMP_FILE"] == str(tmp_path / "kept/attempt-2-trace-rank-")
    assert (tmp_path / "kept").is_dir()  # torch would not make it


def test_what_the_job_says_itself_stays(cuda, tmp_path: Path):
    said = dict.fromkeys(OLD | {"TORCH_NCCL_DUMP_ON_TIMEOUT"}, "0")
    asked = dict(said)
    flight_recorder.record_collectives(tmp_path, asked)
    assert asked == said


@pytest.fixture
def alone(monkeypatch) -> Iterator[None]:
    for name, value in worlds.variables(worlds.free_port()).items():
        monkeypatch.setenv(name, value)
    with join_group(30):
        dist.all_reduce(torch.ones(3))
        yield


def test_gloos_collectives_are_kept_to_be_read(alone, tmp_path: Path):
    readable = flight_recorder.dump_collectives(tmp_path, 0)
    assert readable == tmp_path / "attempt-0-rank-0.json"
    names = [entry["profiling_name"] for entry in json.loads(readable.read_bytes())["entries"]]
    assert "gloo:all_reduce" in names
    assert [*tmp_path.iterdir()] == [readable]


@pytest.fixture
def nccl(alone, cuda, monkeypatch) -> SimpleNamespace:
    """Imitate NCCL's recorder with gloo's and the groups that NCCL's names; ``ahead``: collectives
    of which this rank has run more than the others.
    """
    played = SimpleNamespace(ahead=0)

    def trace() -> bytes:
        said = pickle.loads(real._dump_fr_trace(includeStackTraces=False))
        ranks = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
        said["pg_config"] = {"0": ranks}
        entry = said["entries"][-1] | {"frames": []}
        done = [entry | {"collective_seq_id": 1 + n} for n in range(1 + played.ahead)]
        return pickle.dumps(said | {"entries": done})

    real = flight_recorder.c10d
    played._dump_nccl_trace, played._dump_nccl_trace_json = trace, real._dump_fr_trace_json
    monkeypatch.setattr(flight_recorder, "c10d", played)
    return played


@since("2.13.0", "torchfrtrace that reads a recorder of gloo")
def test_torchs_tool_reads_the_traces_by_the_names_that_they_have(nccl, tmp_path: Path, caplog):
    """docs/scale.md: ``torchfrtrace <folder> --prefix attempt-0-trace-rank-``."""
    from torch.distributed.flight_recorder import fr_trace

    for rank, nccl.ahead in enumerate((1, 0)):
        flight_recorder.dump_collectives(tmp_path, rank)
    caplog.set_level("INFO")
    fr_trace.main([str(tmp_path), "--prefix", "attempt-0-trace-rank-"])
    said = caplog.text
    assert "Not all ranks joining collective, sequence number: 2" in said and "{1}" in said, said


def test_what_the_monitor_of_nccl_wrote_is_not_written_over(nccl, tmp_path: Path):
    (tmp_path / "attempt-0-trace-rank-0").write_bytes(b"torch's")
    flight_recorder.dump_collectives(tmp_path, 0)
    assert (tmp_path / "attempt-0-trace-rank-0").read_bytes() == b"torch's"


def test_a_torch_without_a_recorder_for_gloo_leaves_none(tmp_path: Path, monkeypatch):
    """2.6 and 2.7: the message of a lost rank must not end in an ImportError."""
    monkeypatch.setattr(flight_recorder, "c10d", object())
    assert flight_recorder.dump_collectives(tmp_path, 0) is None
    assert not [*tmp_path.iterdir()]
