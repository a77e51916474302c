"""Visibility of this machine for a job in namespaces."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import Cloud, cloud, needs_namespaces, processing, s3_input
from tests.trainyard.emulator.test_lambda_ import call, code_folder, make, zip_function
from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers import isolation
from trainyard.emulator.containers.cluster import Cluster, Exit, Outcome
from trainyard.emulator.containers.install_layer import Relocation
from trainyard.emulator.containers.isolation import (
    JOB,
    NODE,
    VARIABLE,
    Namespaces,
    build_mount_command,
    check_can_run,
    choose_isolation,
)
from trainyard.emulator.containers.node import Mount, Node, build_base_environment, list_host_names
from trainyard.emulator.server import serve_emulator

pytestmark = pytest.mark.long


def run(directory: Path, script: str, count: int = 1, **settings) -> tuple[Outcome, dict]:
    """Run bash on ``count`` nodes; return the outcome and each node's log."""
    hosts = list_host_names(count)
    way = choose_isolation()
    nodes = []
    for host in hosts:
        python = Path(sys.executable)
        environment = build_base_environment("x", count, python)
        node = Node(host, directory / host, ["bash", "-c", script], environment, python)
        node.make_directories("/opt/ml/model")
        way.prepare(node, hosts)
        nodes.append(node)
    logs: dict[str, list[str]] = {host: [] for host in hosts}
    cluster = Cluster(directory, nodes, way, lambda host, line: logs[host].append(line))
    limit, grace = settings.get("limit"), settings.get("grace", 0.3)
    return cluster.run(limit, grace), logs


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
def spaced_prefix(tmp_path: Path, monkeypatch) -> Path:
    """Return this Python's path through a folder whose name contains a space."""
    prefix = tmp_path / "a checkout" / ".venv"
    prefix.parent.mkdir()
    prefix.symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "executable", str(prefix / "bin" / Path(sys.executable).name))
    return prefix


@needs_namespaces
def test_scripts_that_quote_no_path_run_in_a_checkout_whose_path_holds_a_space(
    tmp_path, spaced_prefix
):
    """AWS's scripts do so: ``$SM_PYTHON_CMD``. It is the same Python, with the same packages."""
    script = "$(command -v python3) -c 'import numpy; print(numpy.__file__)'"
    outcome, logs = run(tmp_path / "a job", f"set -e; $(command -v pip) --version; {script}")
    assert outcome.failure is None, logs
    pip, numpy = logs["algo-1"]
    assert pip.startswith("pip ")  # its script, which names its Python as it was installed
    found = Path(numpy.replace("/opt/home/python", str(spaced_prefix)))
    assert found.samefile(importlib.util.find_spec("numpy").origin)


@pytest.mark.parametrize("path", ["a state", "state*"])
def test_without_namespaces_such_a_path_is_refused_at_once(tmp_path: Path, path: str, monkeypatch):
    monkeypatch.setenv(VARIABLE, "relocate")
    check_can_run(tmp_path / "state")
    with pytest.raises(EmulatorError, match=f"{re.escape(path)}' contains a space or a wildcard"):
        check_can_run(tmp_path / path)


@needs_namespaces
def test_with_namespaces_only_an_interpreter_that_no_job_would_see_is_refused(tmp_path: Path):
    check_can_run(tmp_path / "a state")
    with pytest.raises(EmulatorError, match="python3 is in the state directory"):
        check_can_run(tmp_path, tmp_path / "env/bin/python3")


@needs_namespaces
def test_a_job_is_root_among_its_own_processes_sockets_and_home(tmp_path: Path, monkeypatch):
    """Docker's socket would do anything for it, also where the file system is read-only."""
    secret = tmp_path / "home/.aws/credentials"
    secret.parent.mkdir(parents=True)
    secret.write_text("topsecret")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    listen = "import socket; socket.create_server(('127.0.0.1', 80)); print('listens')"
    script = f"""id -u; touch /opt/ml/model/x; python3 -c "{listen}"
        ls -d /proc/[0-9]* | wc -l
        kill -9 -1
        ls -A /run /var/run/ | grep -v :
        cat {secret}; ls -A {secret.parent}; echo end"""
    _, logs = run(tmp_path / "job", script)
    user, said, processes, *found, end = logs["algo-1"]
    assert (user, said, end) == ("0", "listens", "end")
    assert int(processes) < 8
    assert all("No such" in line for line in found if line), found
    assert secret.read_text() == "topsecret"


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
def test_a_job_sees_neither_the_emulators_environment_nor_its_state(place: Path, monkeypatch):
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
        make(
            aws, "reads", Handler="app.main.main", Code={"ZipFile": zip_function(code)}, Timeout=60
        )
        said += call(aws, "reads")[1].splitlines()
    assert "an input" in said
    assert not [line for line in said if "TOPSECRET" in line or secret in line]
    assert not [line for line in said if line.startswith("sees ")]
    assert len([line for line in said if "Permission denied" in line]) >= 4, said
    assert len([line for line in said if "No such file" in line]) >= 2, said


OWN = {"/opt/ml", "/opt/home", "/tmp", "/var/tmp", "/run", "/dev/shm"}
FILES = {"/etc/hosts", "/etc/environment"}


@needs_namespaces
def test_a_job_can_change_nothing_but_what_is_its_own(tmp_path: Path) -> None:
    """Every mount says so, among them those that root of this machine could write to."""
    places = [Path.home(), *"/usr/local /etc /var/lib /opt / /dev".split(), Path(__file__).parent]
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
def test_what_a_job_leaves_in_a_temporary_folder_no_other_finds(tmp_path: Path) -> None:
    """As on AWS: a model that Train leaves in /tmp is not there for Evaluate."""
    folders = ("/tmp", "/var/tmp", "/dev/shm")
    mine = f"of-this-machine-{tmp_path.name}"
    ours = [Path(folder, mine) for folder in folders]
    with contextlib.ExitStack() as stack:
        for path in ours:
            path.touch()
            stack.callback(path.unlink)
        models = " ".join(f"{folder}/model-{mine}" for folder in folders)
        with cloud(tmp_path / "aws") as aws:
            aws.train("train", f"echo weights | tee {models} > /dev/null; cat {models}")
            aws.process("evaluate", f"cat {models}; ls {' '.join(map(str, ours))}")
            assert aws.log("Training", "train") == ["weights"] * 3
            said = aws.log("Processing", "evaluate")
        assert len(said) == 6 and all("No such file" in line for line in said), said
        assert all(path.exists() for path in ours)
        assert not any(Path(model).exists() for model in models.split())


@needs_namespaces
def test_two_nodes_share_no_folder_and_no_shared_memory(tmp_path: Path) -> None:
    """They are two instances. Semaphores and segments of System V are a node's own, too."""
    script = "echo $HOSTNAME | tee /tmp/me > /opt/ml/model/me; sleep 0.3; cat /tmp/me; "
    outcome, logs = run(tmp_path, f"{script} readlink /proc/self/ns/ipc; ls /opt", count=2)
    assert outcome.failure is None
    assert [logs[host][0] for host in ("algo-1", "algo-2")] == ["algo-1", "algo-2"]
    assert (tmp_path / "algo-2/ml/model/me").read_text() == "algo-2\n"
    spaces = {logs["algo-1"][1], logs["algo-2"][1], Path("/proc/self/ns/ipc").readlink().name}
    assert len(spaces) == 3
    there = {path.name for path in Path("/opt").iterdir()}
    assert set(logs["algo-1"][2:]) == there | {"ml", "home"}
    assert Path("/opt/ml").exists() == ("ml" in there), "the machine's own /opt must not change"


@needs_namespaces
def test_a_function_cannot_change_its_code(tmp_path: Path) -> None:
    """The next call would run it; on AWS, too, it may write to /tmp only."""
    code = "def main(event, context):\n    open('/tmp/x', 'w').close()\n"
    code += "    open('/opt/ml/app/main.py', 'a').write('# changed')\n"
    with cloud(tmp_path / "aws") as aws:
        make(aws, "changes", Handler="app.main.main", Code={"ZipFile": zip_function(code)})
        _, error = call(aws, "changes")
        assert error["errorMessage"] == "[Errno 30] Read-only file system: '/opt/ml/app/main.py'"
        assert (code_folder(aws, "changes") / "app/main.py").read_text() == code


def test_the_emulator_removes_no_folder_that_a_job_names(tmp_path: Path, way: str):
    """A job puts a link where its temporary folder was: what it leads to is not the job's."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    script = f"rm -rf $HOME/tmp; ln -s {kept} $HOME/tmp; ln -s {kept} /opt/ml/model/kept"
    with cloud(tmp_path / "aws") as aws:
        aws.train("links", script)
        make(
            aws, "f", Handler="app.main.f", Code={"ZipFile": zip_function(LINKS.format(kept=kept))}
        )
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
    request = processing("")
    request["AppSpecification"] |= {
        "ContainerEntrypoint": ["python3", "/opt/ml/processing/code/job.py"]
    }
    del request["AppSpecification"]["ContainerArguments"]
    with serve_emulator(tmp_path / "aws", python=environment / "bin/python") as endpoint:
        aws = Cloud(endpoint, tmp_path / "aws")
        for name in ("lazy", "large"):
            code = aws.put("code/job.py", f"import {name}, sys\nprint(sys.dont_write_bytecode)\n")
            aws.process(name, "", **request, ProcessingInputs=[s3_input("code", code)])
        assert aws.log("Processing", "lazy") == ["False"]
    written = [*packages.glob("large/__pycache__/*.pyc"), *packages.glob("__pycache__/*.pyc")]
    assert len(written) == 3
    assert not Path("/var/of-a-package").exists()


def test_log_lines_arrive_whole_and_in_order(tmp_path: Path) -> None:
    script = "for i in $(seq 500); do echo line $i; done; printf 'a\\rb\\n'; printf 'no newline'"
    _, logs = run(tmp_path, script)
    assert logs["algo-1"] == [f"line {i}" for i in range(1, 501)] + ["a", "b", "no newline"]


def test_the_first_failure_is_the_cause_and_the_others_are_stopped(tmp_path: Path) -> None:
    script = "case $HOME$HOSTNAME in *algo-2*) exit 9;; esac; trap '' TERM; sleep 600"
    outcome, _ = run(tmp_path, script, 2)
    assert outcome.exits == [Exit("algo-2", 9)]
    assert outcome.failure == Exit("algo-2", 9)


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
    assert (
        isinstance(choose_isolation(), Relocation)
        and "without namespaces" in choose_isolation().notice
    )
    monkeypatch.setenv(VARIABLE, "docker")
    with pytest.raises(EmulatorError, match="expected 'namespaces' or 'relocate'"):
        choose_isolation()


def test_without_unshare_jobs_are_relocated_and_say_why(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    isolation.explain_missing_namespaces.cache_clear()
    try:
        assert "unshare and mount (util-linux) not found" in choose_isolation().notice
    finally:
        isolation.explain_missing_namespaces.cache_clear()


def inside(script: str, *mounts: Mount) -> str:
    """Return what bash prints where the folders are mounted."""
    command = [*JOB, "--fork", "--kill-child=SIGKILL", "--", *NODE, *build_mount_command(mounts)]
    done = subprocess.run(
        [*command, "/bin/bash", "-c", script],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@needs_namespaces
def test_a_mounted_tree_is_the_same_and_cannot_be_changed(tmp_path: Path):
    tree = tmp_path / "tree"
    (tree / "deep/er").mkdir(parents=True)
    (tree / "deep/er/big").write_bytes(os.urandom(3000))
    (tree / "run.sh").write_text("echo started\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("deep/er")
    (tree / "broken").symlink_to("nowhere")
    at = tmp_path / "elsewhere"
    at.mkdir()
    mount = Mount(str(tree), str(at), True)
    compared = inside(f"diff -r --exclude=broken {tree} {at} && echo same; sh {at}/run.sh", mount)
    assert compared.split() == ["same", "started"]
    may = f"test -x {at}/run.sh && echo program; test -x {at}/link/big || echo data"
    assert inside(may, mount).split() == ["program", "data"]
    assert inside(f"echo x > {at}/new; rm {at}/run.sh", mount).count("Read-only file system") == 2
    assert not any(at.iterdir())
