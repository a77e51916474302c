"""Visibility of this machine for a job in namespaces."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import cloud, s3_input
from tests.trainyard.emulator.services.test_functions import call, make, zipped
from trainyard.common.errors import EmulatorError
from trainyard.emulator.runtime import isolation
from trainyard.emulator.runtime.cluster import Cluster, Exit, Outcome
from trainyard.emulator.runtime.isolation import VARIABLE, Namespaces, choose, missing, refuse
from trainyard.emulator.runtime.node import Node, base_environment, host_names
from trainyard.emulator.runtime.relocation import Relocation

pytestmark = pytest.mark.long

needs_namespaces = pytest.mark.skipif(missing() is not None, reason=f"namespaces: {missing()}")


def run(directory: Path, script: str, count: int = 1, **settings) -> tuple[Outcome, dict]:
    """Run bash on ``count`` nodes; return the outcome and each node's log."""
    hosts = host_names(count)
    way = choose()
    nodes = []
    for host in hosts:
        python = Path(sys.executable)
        environment = base_environment("x", count, python)
        node = Node(host, directory / host, ["bash", "-c", script], environment, python)
        node.make_directories("/opt/ml/model")
        way.prepare(node, hosts)
        nodes.append(node)
    logs: dict[str, list[str]] = {host: [] for host in hosts}
    cluster = Cluster(directory, nodes, way, lambda host, line: logs[host].append(line))
    limit, grace = settings.get("limit"), settings.get("grace", 0.3)
    return cluster.run(limit, grace), logs


@needs_namespaces
def test_a_node_has_its_own_opt_ml_and_name(tmp_path: Path) -> None:
    outcome, logs = run(tmp_path, "echo $HOSTNAME > /opt/ml/model/me; ls /opt", count=2)
    assert outcome.failure is None
    assert (tmp_path / "algo-2/ml/model/me").read_text() == "algo-2\n"
    there = {path.name for path in Path("/opt").iterdir()}
    assert set(logs["algo-1"]) == there | {"ml", "home"}
    assert Path("/opt/ml").exists() == ("ml" in there), "the machine's own /opt must not change"


@needs_namespaces
def test_nodes_find_each_other_and_nothing_else(tmp_path: Path) -> None:
    script = """python3 -c "
import socket, time
if socket.gethostname() == 'algo-1':
    with socket.create_server(('algo-1', 7777)) as s: print(s.accept()[0].recv(9).decode())
else:
    for _ in range(100):
        try: socket.create_connection(('algo-1', 7777)).sendall(b'hello'); break
        except ConnectionRefusedError: time.sleep(0.02)
    try: socket.create_connection(('192.0.2.1', 80), 1)
    except OSError as error: print(error.strerror)
" """
    _, logs = run(tmp_path, script, count=2)
    assert logs == {"algo-1": ["hello"], "algo-2": ["Network is unreachable"]}


@pytest.fixture
def spaced(tmp_path: Path, monkeypatch) -> Path:
    """Return this Python's path through a folder whose name contains a space."""
    prefix = tmp_path / "a checkout" / ".venv"
    prefix.parent.mkdir()
    prefix.symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "executable", str(prefix / "bin" / Path(sys.executable).name))
    return prefix


@needs_namespaces
def test_scripts_that_quote_no_path_run_in_a_checkout_whose_path_holds_a_space(
    tmp_path: Path, spaced: Path
) -> None:
    """AWS's scripts do so: ``$SM_PYTHON_CMD``. It is the same Python, with the same packages."""
    script = "$(command -v python3) -c 'import numpy; print(numpy.__file__)'"
    outcome, logs = run(tmp_path / "a job", f"set -e; $(command -v pip) --version; {script}")
    assert outcome.failure is None, logs
    pip, numpy = logs["algo-1"]
    assert pip.startswith("pip ")  # its script, which names its Python as it was installed
    found = Path(numpy.replace("/opt/home/python", str(spaced)))
    assert found.samefile(importlib.util.find_spec("numpy").origin)


@pytest.mark.parametrize("path", ["a state", "state*"])
def test_without_namespaces_such_a_path_is_refused_at_once(
    tmp_path: Path, path: str, monkeypatch
) -> None:
    monkeypatch.setenv(VARIABLE, "relocate")
    refuse(tmp_path / "state")
    with pytest.raises(EmulatorError, match=f"{re.escape(path)}' holds a space or a wildcard"):
        refuse(tmp_path / path)


@needs_namespaces
def test_an_interpreter_that_no_job_would_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="python3 lies in the state directory"):
        refuse(tmp_path, tmp_path / "env/bin/python3")


@needs_namespaces
def test_with_namespaces_no_path_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path / "a state")


@needs_namespaces
def test_a_job_sees_only_its_own_processes(tmp_path: Path) -> None:
    _, logs = run(tmp_path, "ls -d /proc/[0-9]* | wc -l; kill -9 -1; echo survived")
    assert int(logs["algo-1"][0]) < 8


READ = """
exec 2>&1
cat /proc/*/environ | tr '\\0' '\\n' | grep TOPSECRET
cat STATE/credentials.json /proc/1/cwd/credentials.json /proc/1/root/STATE/credentials.json
umount -l STATE; nsenter --target 1 --mount --user cat STATE/credentials.json
ls -A STATE | sed 's/^/sees /'
cat /opt/ml/processing/in/f || true
"""


@needs_namespaces
def test_a_job_sees_neither_the_emulators_environment_nor_its_state(
    tmp_path: Path, monkeypatch
) -> None:
    """Also for a Lambda function: each has its own process 1, and the state below its folder."""
    monkeypatch.setenv("TOPSECRET", "TOPSECRET")
    monkeypatch.chdir(tmp_path)
    with cloud(tmp_path / "aws") as aws:
        secret = aws.endpoint.app.keys.own[1]
        script = READ.replace("STATE", str(aws.state))
        aws.put("f", "an input")
        inputs = [s3_input("in", "s3://bkt/f")]
        aws.process("reads", script, ProcessingInputs=inputs)
        said = aws.log("Processing", "reads")
        code = "import subprocess\ndef main(event, context):\n    command = ['bash', '-c', "
        code += f"{script!r}]\n    return subprocess.check_output(command, text=True)\n"
        make(aws, "reads", Handler="app.main.main", Code={"ZipFile": zipped(code)}, Timeout=60)
        said += call(aws, "reads")[1].splitlines()
    assert "an input" in said
    assert not [line for line in said if "TOPSECRET" in line or secret in line]
    assert not [line for line in said if line.startswith("sees ")]
    assert len([line for line in said if "Permission denied" in line]) >= 4, said


@needs_namespaces
def test_a_job_may_listen_at_a_low_port_and_be_root(tmp_path: Path) -> None:
    script = "import socket; socket.create_server(('127.0.0.1', 80)); print('listens')"
    _, logs = run(tmp_path, f'id -u; touch /opt/ml/model/x; python3 -c "{script}"')
    assert logs["algo-1"] == ["0", "listens"]


@needs_namespaces
def test_the_users_credentials_file_is_out_of_reach(tmp_path: Path, monkeypatch) -> None:
    secret = tmp_path / "home/.aws/credentials"
    secret.parent.mkdir(parents=True)
    secret.write_text("topsecret")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    _, logs = run(tmp_path / "job", f"cat {secret} || ls -a {secret.parent}")
    assert "topsecret" not in logs["algo-1"]
    assert logs["algo-1"][-2:] == [".", ".."]
    assert secret.read_text() == "topsecret"


def test_log_lines_arrive_whole_and_in_order(tmp_path: Path) -> None:
    script = "for i in $(seq 500); do echo line $i; done; printf 'a\\rb\\n'; printf 'no newline'"
    _, logs = run(tmp_path, script)
    assert logs["algo-1"] == [f"line {i}" for i in range(1, 501)] + ["a", "b", "no newline"]


def test_the_first_failure_is_the_cause_and_the_others_are_stopped(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, SCRIPT, 2)
    assert outcome.exits == [Exit("algo-2", 9)]
    assert outcome.failure == Exit("algo-2", 9)


SCRIPT = "case $HOME$HOSTNAME in *algo-2*) exit 9;; esac; trap '' TERM; sleep 600"


def test_a_limit(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, "sleep 600", limit=0.3)
    assert outcome.timed_out
    assert outcome.failure is None


def test_a_job_that_cannot_start_says_why(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Namespaces, "setup", lambda *_: [["mount", "--bind", "/no/such", "/opt"]])
    monkeypatch.setattr(Relocation, "setup", lambda *_: [["mount", "--bind", "/no/such", "/opt"]])
    with pytest.raises(EmulatorError, match="/no/such"):
        run(tmp_path, "true")


def test_the_way_can_be_forced(monkeypatch) -> None:
    monkeypatch.setenv(VARIABLE, "relocate")
    way = choose()
    assert isinstance(way, Relocation)
    assert "without namespaces" in way.notice
    monkeypatch.setenv(VARIABLE, "docker")
    with pytest.raises(EmulatorError, match="expected 'namespaces' or 'relocate'"):
        choose()


def test_without_unshare_jobs_are_relocated_and_say_why(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    isolation.missing.cache_clear()
    try:
        assert "unshare and mount (util-linux) not found" in choose().notice
    finally:
        isolation.missing.cache_clear()
