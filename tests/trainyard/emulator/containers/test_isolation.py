"""Visibility of this machine for a job in namespaces."""

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import Cloud, cloud, processing, s3_input
from tests.trainyard.emulator.test_lambda_ import call, code_folder, make, zipped
from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers import isolation
from trainyard.emulator.containers.cluster import Cluster, Exit, Outcome
from trainyard.emulator.containers.install_layer import Relocation
from trainyard.emulator.containers.isolation import (
    VARIABLE,
    Namespaces,
    choose,
    namespaces_unavailable_reason,
    refuse,
)
from trainyard.emulator.containers.node import Node, base_environment, host_names
from trainyard.emulator.server import serve

pytestmark = pytest.mark.long

needs_namespaces = pytest.mark.skipif(
    namespaces_unavailable_reason() is not None,
    reason=f"namespaces: {namespaces_unavailable_reason()}",
)


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


@pytest.fixture(params=["hidden", "visible"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return a folder below those that a job's own ones hide, or one that it would see."""
    if request.param == "hidden":
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix=".trainyard-test-", dir=Path.home()) as folder:
        yield Path(folder)


@needs_namespaces
def test_a_job_sees_neither_the_emulators_environment_nor_its_state(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a Lambda function: each has its own process 1, and the state below its folder."""
    monkeypatch.setenv("TOPSECRET", "TOPSECRET")
    monkeypatch.chdir(place)
    with cloud(place / "aws") as aws:
        secret = aws.endpoint.app.keys.own_pair[1]
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
    assert len([line for line in said if "No such file" in line]) >= 2, said


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
    _, logs = run(tmp_path / "job", f"cat {secret}; ls -A {secret.parent}; echo end")
    assert "topsecret" not in logs["algo-1"] and "credentials" not in logs["algo-1"]
    assert logs["algo-1"][-1] == "end"
    assert secret.read_text() == "topsecret"


OWN = {"/opt/ml", "/opt/home", "/tmp", "/var/tmp", "/run", "/dev/shm"}
FILES = {"/etc/hosts", "/etc/environment"}


@needs_namespaces
def test_a_job_can_change_nothing_but_what_is_its_own(tmp_path: Path) -> None:
    """Every mount says so, among them those that root of this machine could write to."""
    places = [
        Path.home(),
        "/usr/local",
        "/etc",
        "/var/lib",
        "/opt",
        "/",
        "/dev",
        Path(__file__).parent,
    ]
    tries = "; ".join(f"touch {p}/of-a-job && rm {p}/of-a-job && echo wrote {p}" for p in places)
    own = "; ".join(f"touch {place}/x && echo own {place}" for place in sorted(OWN))
    files = "; ".join(f"true >> {file} && echo own {file}" for file in sorted(FILES))
    _, logs = run(tmp_path, f"{tries}; {own}; {files}; cat /proc/self/mountinfo")
    assert not [line for line in logs["algo-1"] if line.startswith("wrote")]
    there = {place for place in OWN | FILES if Path(place).exists() or place.startswith("/opt")}
    assert {line[4:] for line in logs["algo-1"] if line.startswith("own ")} == there
    mounts = [line.split() for line in logs["algo-1"] if re.match(r"\d+ \d+ \d+:\d+ ", line)]
    top = {mount[4]: mount[5].split(",") for mount in mounts}  # the last one hides those before
    writable = {place for place, options in top.items() if "rw" in options}
    assert writable == there | {"/proc"}
    assert "ro" in top["/proc/sys"]


@needs_namespaces
@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
def test_what_a_job_leaves_in_a_temporary_folder_no_other_finds(
    tmp_path: Path, folder: str
) -> None:
    """As on AWS: a model that Train leaves in /tmp is not there for Evaluate."""
    ours = Path(folder, f"of-this-machine-{tmp_path.name}")
    ours.touch()
    try:
        with cloud(tmp_path / "aws") as aws:
            aws.train("train", f"echo weights > {folder}/model.bin; cat {folder}/model.bin")
            aws.process("evaluate", f"cat {folder}/model.bin; ls {folder}/of-this-machine*")
            assert aws.log("Training", "train") == ["weights"]
            said = aws.log("Processing", "evaluate")
        assert len(said) == 2 and all("No such file" in line for line in said), said
        assert ours.exists() and not Path(folder, "model.bin").exists()
    finally:
        ours.unlink()


@needs_namespaces
def test_two_nodes_share_no_temporary_folder_and_no_shared_memory(tmp_path: Path) -> None:
    """They are two instances. Semaphores and segments of System V are a node's own, too."""
    script = "echo $HOSTNAME > /tmp/me; sleep 0.3; cat /tmp/me; readlink /proc/self/ns/ipc"
    _, logs = run(tmp_path, script, count=2)
    assert {host: lines[0] for host, lines in logs.items()} == {
        "algo-1": "algo-1",
        "algo-2": "algo-2",
    }
    spaces = {logs["algo-1"][1], logs["algo-2"][1], Path("/proc/self/ns/ipc").readlink().name}
    assert len(spaces) == 3


@needs_namespaces
def test_a_job_reaches_no_socket_of_this_machines_services(tmp_path: Path) -> None:
    """Docker's would do anything for it, also where the file system is read-only."""
    _, logs = run(tmp_path, "ls -A /run /var/run/ | grep -v :; echo end")
    assert [line for line in logs["algo-1"] if line] == ["end"]


@needs_namespaces
def test_a_function_cannot_change_its_code(tmp_path: Path) -> None:
    """The next call would run it; on AWS, too, it may write to /tmp only."""
    code = "def main(event, context):\n    open('/tmp/x', 'w').close()\n"
    code += "    open('/opt/ml/app/main.py', 'a').write('# changed')\n"
    with cloud(tmp_path / "aws") as aws:
        make(aws, "changes", Handler="app.main.main", Code={"ZipFile": zipped(code)})
        _, error = call(aws, "changes")
        assert error["errorMessage"] == "[Errno 30] Read-only file system: '/opt/ml/app/main.py'"
        assert (code_folder(aws, "changes") / "app/main.py").read_text() == code


@pytest.mark.parametrize("way", ["namespaces", "relocate"])
def test_the_emulator_removes_no_folder_that_a_job_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A job puts a link where its temporary folder was: what it leads to is not the job's."""
    if way == "namespaces" and namespaces_unavailable_reason():
        pytest.skip(f"namespaces: {namespaces_unavailable_reason()}")
    monkeypatch.setenv(VARIABLE, way)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    script = f"rm -rf $HOME/tmp; ln -s {kept} $HOME/tmp; ln -s {kept} /opt/ml/model/kept"
    with cloud(tmp_path / "aws") as aws:
        aws.train("links", script)
        make(aws, "f", Handler="app.main.f", Code={"ZipFile": zipped(LINKS.format(kept=kept))})
        call(aws, "f")
        assert not list((aws.state / "jobs/links").glob("algo-*"))
    assert (kept / "file").exists()


LINKS = """
import os, pathlib, shutil
def f(event, context):
    home = pathlib.Path(os.environ["HOME"])
    shutil.rmtree(home / "tmp", ignore_errors=True)
    (home / "tmp").symlink_to("{kept}")
"""


@needs_namespaces
def test_bytecode_of_packages_is_kept_for_the_jobs_that_cannot_write_it(tmp_path: Path) -> None:
    """Else each process of each job compiles torch anew."""
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "large").mkdir()
    (packages / "large/__init__.py").write_text("from large import part\n")
    (packages / "large/part.py").write_text("import os\nos.makedirs('/var/of-a-package')\n")
    (packages / "lazy.py").write_text("")
    with serve(tmp_path / "aws", python=environment / "bin/python") as endpoint:
        aws = Cloud(endpoint, tmp_path / "aws")
        code = "import large, sys\nprint(sys.dont_write_bytecode)\n"
        inputs = [s3_input("code", aws.put("code/job.py", code.replace("large", "lazy")))]
        command = ["python3", "/opt/ml/processing/code/job.py"]
        for name in ("lazy", "large"):
            aws.put("code/job.py", code.replace("large", name))
            request = processing("")
            request["AppSpecification"] |= {"ContainerEntrypoint": command}
            del request["AppSpecification"]["ContainerArguments"]
            aws.process(name, "", **request, ProcessingInputs=inputs)
        assert aws.log("Processing", "lazy") == ["False"]
    assert (
        len([*packages.glob("large/__pycache__/*.pyc"), *packages.glob("__pycache__/*.pyc")]) == 3
    )
    assert not Path("/var/of-a-package").exists()


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
    isolation.namespaces_unavailable_reason.cache_clear()
    try:
        assert "unshare and mount (util-linux) not found" in choose().notice
    finally:
        isolation.namespaces_unavailable_reason.cache_clear()
