"""What the command says before it costs money, and what it compares without an endpoint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.parity.case_table import CASES, MACHINES, PRICED, costs
from benchmarks.parity.record import EMULATOR, read, write
from trainyard.plan.prices import load

CHECKOUT = Path(__file__).parents[3]
pytestmark = pytest.mark.long


def parity(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.parity", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_highest_cost_is_that_of_all_jobs_until_they_are_stopped():
    said = costs("us-east-1", list(CASES))
    hours = 12 * 900 / 3600 * 0.05 + (2 * 900 + 1800) / 3600 * 0.115
    assert said == (
        "jobs: 12 processing on ml.t3.medium (at most 15 minutes each), 2 training on ml.m5.large "
        "(at most 15 minutes each), 1 transform on ml.m5.large (at most 30 minutes each); "
        f"at most ${hours:.2f}"
    )
    other = costs("eu-west-1", ["a_batch_transform"])
    assert other.endswith("$0.06 at prices of us-east-1, for want of eu-west-1's")
    for machine in MACHINES.values():
        assert load(PRICED).hourly(machine.price, machine.instance_type)
    document = (CHECKOUT / "docs/emulator.md").read_text()
    assert f"# {len(CASES)} cases: at most ${hours:.2f} in us-east-1" in document
    assert costs("us-east-1", ["what_does_not_exist"]) == "jobs: none; at most $0.00"


def test_a_sent_record_is_compared_without_an_endpoint(tmp_path: Path):
    record, rows = read(EMULATOR), tmp_path / "rows.yaml"
    write(tmp_path / "sent.json", record)
    assert parity("--compare", tmp_path / "sent.json").returncode == 0
    record["cases"]["what_start_refuses"][2]["error"]["Message"] = "other"
    record["not_recorded"] = {"a_batch_transform": "the account's quota is too low"}
    (tmp_path / "sent.json").write_text(json.dumps(record))
    done = parity("--compare", tmp_path / "sent.json", "--rows", rows)
    assert done.returncode == 1 and done.stdout.splitlines()[1].startswith(
        "what_start_refuses[2]\t"
    )
    assert "not recorded: a_batch_transform: the account's quota" in done.stderr
    assert "ValidationException: other" in rows.read_text()


def test_an_unknown_case_or_file_is_named():
    assert "a_batch_transform" in parity("--only", "a_batch_transfrom").stderr
    assert "/none.json" in parity("--compare", "/none.json").stderr
