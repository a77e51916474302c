"""Jobs reach the internet only on request, and an impossible request is reported."""

import shutil
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import Cloud, needs_namespaces, processing
from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers.isolation import explain_missing_namespaces
from trainyard.emulator.containers.proxy import WAYS, find_network_tool
from trainyard.emulator.server import serve_emulator

THERE = [name for name in WAYS if shutil.which(name)]


@needs_namespaces
def test_without_a_tool_it_is_refused_before_anything_starts(tmp_path: Path, monkeypatch):
    assert explain_missing_namespaces() is None  # cached now: which finds no unshare below
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with (
        pytest.raises(EmulatorError, match="apt install slirp4netns"),
        serve_emulator(tmp_path, internet=True),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_neither_tool_lets_a_job_reach_this_machines_loopback() -> None:
    pasta, slirp = (found.command(7) for found in WAYS.values())
    assert "--no-map-gw" in pasta and pasta.count("none") == 4
    assert "--disable-host-loopback" in slirp


@needs_namespaces
@pytest.mark.skipif(not THERE, reason="no pasta and no slirp4netns here")
def test_a_job_has_a_way_out_unless_it_is_isolated(tmp_path: Path) -> None:
    script = "cut -f2 /proc/net/route; tail -n 1 /etc/resolv.conf; aws s3 ls > /dev/null && echo s3"
    with serve_emulator(tmp_path, internet=True) as endpoint:
        aws = Cloud(endpoint, tmp_path)
        done = aws.process("out", script)
        assert done["ProcessingJobStatus"] == "Completed", done
        assert aws.log("Processing", "out")[-2:] == [
            f"nameserver {find_network_tool().nameserver}",
            "s3",
        ]
        assert "00000000" in aws.log("Processing", "out"), "there is a default route"
        isolated = processing(script) | {"NetworkConfig": {"EnableNetworkIsolation": True}}
        aws.process("in", "", **isolated)
        assert "00000000" not in aws.log("Processing", "in")
