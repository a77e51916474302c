"""Training jobs in containers of a real engine: SageMaker's contract, and what is left of them."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.conftest import CHECKOUT
from tests.container_images import OWN, URI, build, make_base, needs_engine
from tests.trainyard.emulator.harness import Cloud, channel, cloud, training, until
from tests.trainyard.emulator.sagemaker.tuning.harness import config, definition, request, tune
from trainyard.emulator.containers.container_engine import LABEL, VARIABLE, find_engine

pytestmark = [pytest.mark.slow, needs_engine]


@pytest.fixture(scope="module", autouse=True)
def image() -> str:
    make_base()
    return URI


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("aws")) as found:
        yield found


ENDLESS = "print('ready', flush=True); import time; time.sleep(600)"


def own(code: str, nodes: int = 1, image: str = URI, **more) -> dict:
    """Return CreateTrainingJob's request: the image's ``train`` runs the Python ``code``."""
    request = training("true", nodes)
    request["AlgorithmSpecification"] = {"TrainingImage": image, "TrainingInputMode": "File"}
    return request | {"HyperParameters": {"code": code}} | more


def train(aws: Cloud, name: str, request: dict) -> dict:
    aws.sm.create_training_job(TrainingJobName=name, **request)
    return aws.wait_for_training(name)


def archive(aws: Cloud, name: str) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(aws.get(f"models/{name}/output/model.tar.gz"))) as tar:
        files = [member for member in tar.getmembers() if member.isfile()]
        return {member.name: tar.extractfile(member).read().decode() for member in files}


def remains(state: Path) -> list[str]:
    """Return the names of the state directory's containers and networks."""
    chosen = ["--filter", f"label={LABEL}={state}"]
    engine = find_engine()
    names = engine.call("ps", "--all", "--format", "{{.Names}}", *chosen).stdout
    return names.split() + engine.call("network", "ls", "--quiet", *chosen).stdout.split()


def test_the_training_contract(aws: Cloud) -> None:
    aws.put("data/a.csv", "1,2\n")
    aws.put("checkpoints/old", "9")
    code = """
import json, os, pathlib, socket
root = pathlib.Path("/opt/ml")
seen = {
    "files": sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()),
    "resources": json.loads((root / "input/config/resourceconfig.json").read_text()),
    "environment": dict(os.environ),
    "host": socket.gethostname(),
    "memory": os.statvfs("/dev/shm").f_blocks > 2 ** 17,
    "others": os.path.exists("/work") or os.path.exists(os.environ.get("STATE", "/none")),
}
(root / "model/seen.json").write_text(json.dumps(seen))
os.chmod(root / "model/seen.json", 0o600)
(root / "output/data/log.txt").write_text("data")
(root / "checkpoints/new").write_text("10")
print("loss=0.25", flush=True)
print("to stderr", file=__import__("sys").stderr)
"""
    request = own(
        code,
        InputDataConfig=[channel("train", "s3://bkt/data/")],
        Environment={"COLOUR": "blue = 'dark'", "STATE": str(aws.state)},
        CheckpointConfig={"S3Uri": "s3://bkt/checkpoints"},
    )
    request["AlgorithmSpecification"]["MetricDefinitions"] = [
        {"Name": "loss", "Regex": "loss=([0-9.]+)"}
    ]
    done = train(aws, "contract", request)
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    seen = json.loads(archive(aws, "contract")["seen.json"])
    assert seen["files"] == [
        "checkpoints/old",
        "code/baked.py",  # the image's own
        "input/config/checkpointconfig.json",
        "input/config/hyperparameters.json",
        "input/config/inputdataconfig.json",
        "input/config/resourceconfig.json",
        "input/data/train/a.csv",
    ]
    assert seen["resources"]["current_host"] == seen["host"] == "algo-1"
    assert seen["resources"]["network_interface_name"] == "eth0"
    assert seen["environment"]["TRAINING_JOB_NAME"] == "contract"
    assert seen["environment"]["COLOUR"] == "blue = 'dark'"
    assert seen["environment"]["BAKED"] == "yes"
    assert seen["environment"]["PATH"].startswith("/usr/local/sbin:")  # the image's own
    assert seen["memory"] and not seen["others"]
    assert aws.get("checkpoints/new") == b"10"
    assert "models/contract/output/output.tar.gz" in aws.keys("models/contract")
    assert done["FinalMetricDataList"][0]["Value"] == 0.25
    assert {"loss=0.25", "to stderr"} <= set(aws.log("Training", "contract"))
    [line] = [line for line in aws.all_lines("Training", "contract") if "sha256:" in line]
    assert find_engine().find_image(OWN).digest in line
    until(lambda: not list((aws.state / "jobs/contract").glob("algo-*")), 10)
    until(lambda: not remains(aws.state), 10)


SIGNED = """
import hashlib, hmac, os, time, urllib.request
url = os.environ["AWS_ENDPOINT_URL"]
host = url.split("//")[1]
when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
scope = f"{when[:8]}/us-east-1/sts/aws4_request"
body = b"Action=GetCallerIdentity&Version=2011-06-15"
token = os.environ["AWS_SESSION_TOKEN"]
head = f"host:{host}\\nx-amz-date:{when}\\nx-amz-security-token:{token}\\n"
names = "host;x-amz-date;x-amz-security-token"
asked = f"POST\\n/\\n\\n{head}\\n{names}\\n{hashlib.sha256(body).hexdigest()}"
text = f"AWS4-HMAC-SHA256\\n{when}\\n{scope}\\n{hashlib.sha256(asked.encode()).hexdigest()}"
key = b"AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"].encode()
for part in [*scope.split("/"), text]:
    key = hmac.new(key, part.encode(), hashlib.sha256).digest()
authorization = (f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope}, "
                 f"SignedHeaders={names}, Signature={key.hex()}")
headers = {"X-Amz-Date": when, "X-Amz-Security-Token": token, "Authorization": authorization}
print(urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=9).read())
"""


REACH = """
import socket, time
for name, address in (("outside", ("192.0.2.1", 53)), ("host", ("127.0.0.1", PORT))):
    try: socket.create_connection(address, 2); print(name, "reached")
    except OSError as error: print(name, "not reached")
if socket.gethostname() == "algo-1":
    door = socket.create_server(("algo-1", 7777))
    print("heard", door.accept()[0].recv(9).decode())
else:
    for _ in range(100):
        try: socket.create_connection(("algo-1", 7777)).sendall(b"algo-2"); break
        except OSError: time.sleep(0.1)
"""


def test_two_nodes_reach_each_other_and_the_endpoint_as_their_role_and_nothing_else(aws: Cloud):
    code = SIGNED + REACH.replace("PORT", aws.endpoint.url.rpartition(":")[2])
    done = train(aws, "reach", own(code, nodes=2))
    assert done["TrainingJobStatus"] == "Completed", aws.log("Training", "reach")
    text = "\n".join(aws.log("Training", "reach"))
    assert "assumed-role/pipeline/SageMaker" in text
    assert "outside not reached" in text and "host not reached" in text
    assert "heard algo-2" in text


def test_network_isolation_leaves_no_network(aws: Cloud) -> None:
    code = "import os; print(os.listdir('/sys/class/net'), 'AWS_ENDPOINT_URL' in os.environ)"
    train(aws, "isolated", own(code, EnableNetworkIsolation=True))
    assert "['lo'] False" in aws.log("Training", "isolated")


def test_an_isolated_pair_reaches_each_other_but_no_endpoint(aws: Cloud) -> None:
    code = (
        "import os, socket as s; print(s.gethostbyname('algo-2'), 'AWS_ENDPOINT_URL' in os.environ)"
    )
    train(aws, "isolated-pair", own(code, nodes=2, EnableNetworkIsolation=True))
    [line] = aws.log("Training", "isolated-pair")[-1:]
    assert line.startswith("10.") and line.endswith("False")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ValueError('on purpose')", "AlgorithmError: ValueError: on purpose, exit code: 1"),
        # process 1 cannot kill itself: its child is killed, and it says so
        ("import subprocess, sys; sys.exit(128 - subprocess.call(['sh', '-c', 'kill -9 $$']))",
         "was killed by SIGKILL, exit code: 137"),
        ("open('/opt/ml/output/failure', 'w').write('why'); exit(126)", "why, exit code: 126"),
    ],
)  # fmt: skip
def test_how_a_job_fails(aws: Cloud, code: str, reason: str) -> None:
    done = train(aws, f"fails-{abs(hash(code))}", own(code))
    assert done["TrainingJobStatus"] == "Failed"
    assert reason in done["FailureReason"]


@pytest.mark.parametrize("entrypoint", [["/nowhere"], ["/etc/passwd"]])
def test_an_entrypoint_that_cannot_be_run(aws: Cloud, entrypoint: list[str]) -> None:
    request = own("pass")
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = entrypoint
    done = train(aws, f"no-entry-{len(entrypoint[0])}", request)
    assert done["FailureReason"].startswith("ClientError: CannotStartContainerError.")
    assert "docker run <image> train" in done["FailureReason"]
    assert entrypoint[0] in done["FailureReason"]
    until(lambda: not remains(aws.state), 10)


HANDLER = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("/opt/ml/model/saved").write_text("yes")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


def test_sigterm_lets_a_job_save_its_model(aws: Cloud) -> None:
    aws.sm.create_training_job(TrainingJobName="stops", **own(HANDLER))
    until(lambda: "ready" in aws.log("Training", "stops"))
    aws.sm.stop_training_job(TrainingJobName="stops")
    assert aws.wait_for_training("stops")["TrainingJobStatus"] == "Stopped"
    assert archive(aws, "stops") == {"saved": "yes"}


def test_a_job_beyond_its_time_that_hears_nothing_is_killed(aws: Cloud) -> None:
    began = time.monotonic()
    done = train(aws, "late", own(ENDLESS, StoppingCondition={"MaxRuntimeInSeconds": 1}))
    assert done["SecondaryStatus"] == "MaxRuntimeExceeded"
    assert time.monotonic() - began < 30
    assert any("SIGTERM reaches the first process" in x for x in aws.all_lines("Training", "late"))
    until(lambda: not remains(aws.state), 10)


def test_the_image_is_found_under_its_local_name(aws: Cloud) -> None:
    assert find_engine().find_image(URI).name.removeprefix("localhost/") == OWN
    missing = URI.replace("own:1", "missing:1")
    with pytest.raises(ClientError) as refused:
        aws.sm.create_training_job(TrainingJobName="missing", **own("pass", image=missing))
    text = str(refused.value)
    assert f"has no image {missing} or trainyard-tests/missing:1" in text
    assert "build -t trainyard-tests/missing:1 ." in text and f"pull {missing}" in text
    step = {"Name": "a", "Type": "Training", "Arguments": own("pass", image=missing)}
    with pytest.raises(ClientError, match="build -t trainyard-tests/missing:1"):
        aws.create("missing", [step])
    with pytest.raises(ClientError, match="(has no image|it has) --help"):  # it is no option
        aws.sm.create_training_job(TrainingJobName="option", **own("pass", image="--help"))


def test_an_image_of_another_registry_is_another_image() -> None:
    engine = find_engine()
    other = URI.replace("123456789012", "210987654321").replace("own:1", "foreign:1")
    assert engine.call("tag", OWN, other).returncode == 0
    try:
        assert engine.find_image(other).name == other
        assert engine.find_image(URI.replace("own:1", "foreign:1")) is None
    finally:
        engine.call("rmi", other)


def test_an_image_of_another_architecture_is_refused(aws: Cloud, tmp_path: Path) -> None:
    other = "s390x"
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    name = build(tmp_path, "trainyard-tests/other:1", "--platform", f"linux/{other}")
    with pytest.raises(ClientError, match=f"is for {other}, this machine is .*--platform linux/"):
        aws.sm.create_training_job(TrainingJobName="other", **own("pass", image=name))


def test_a_user_of_the_images_own_writes_its_model(aws: Cloud, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {OWN}\nUSER 1234\n")
    name = build(tmp_path, "trainyard-tests/user:1")
    code = "import os; open('/opt/ml/model/uid', 'w').write(str(os.getuid()))"
    done = train(aws, "user", own(code, image=name))
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    assert archive(aws, "user") == {"uid": "1234"}


def test_always_runs_also_what_this_python_could(aws: Cloud, monkeypatch: pytest.MonkeyPatch):
    """AWS's image is not here, so it is refused by name."""
    monkeypatch.setenv(VARIABLE, "always")
    name = "pytorch-training:2.6.0-cpu-py312"
    with pytest.raises(ClientError, match=f"{name} or {name}"):
        aws.sm.create_training_job(TrainingJobName="a", **training("true"))


SERVER = """
import sys, time
from pathlib import Path
from tests.trainyard.emulator.harness import cloud
from tests.trainyard.emulator.containers.test_containers import ENDLESS, own
with cloud(Path(sys.argv[1]), stop_grace=1.0) as aws:
    aws.sm.create_training_job(TrainingJobName="one", **own(ENDLESS, nodes=2))
    while not all("ready" in aws.log("Training", "one", node) for node in ("algo-1", "algo-2")):
        time.sleep(0.05)
    print("running", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_containers_end_with_the_emulator(tmp_path: Path, number: int) -> None:
    run = [sys.executable, "-c", SERVER, str(tmp_path)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=CHECKOUT,
                          text=True) as server:  # fmt: skip
        assert server.stdout.readline() == "running\n"
        assert len([name for name in remains(tmp_path) if "algo-" in name]) == 2
        server.send_signal(number)
        server.wait(60)
        until(lambda: not [name for name in remains(tmp_path) if "algo-" in name], 30)
    with cloud(tmp_path) as aws:  # networks of a killed emulator are removed at the next start
        assert remains(tmp_path) == []
        assert aws.wait_for_training("one")["TrainingJobStatus"] in ("Failed", "Stopped")


def test_containers_whose_supervisor_was_killed_too_are_found_by_label(tmp_path: Path) -> None:
    engine = find_engine()
    with cloud(tmp_path) as aws:
        train(aws, "first", own("pass"))
    label = ["--label", f"{LABEL}={tmp_path}"]
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
    run = ["run", "--detach", *label, *limits, "--network", "none", OWN, "sleep", "600"]
    assert engine.call(*run).returncode == 0
    assert len(remains(tmp_path)) == 1
    with cloud(tmp_path):
        assert remains(tmp_path) == []


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 24 MB. Its path is short: the engine has sockets there."""
    folder = Path(tempfile.mkdtemp())
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("a file system of its own needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--recursive", str(folder)], check=True)
        folder.rmdir()


def test_a_full_disk_fails_the_job_and_not_the_next_one(small_disk: Path) -> None:
    write = "import os; open('/opt/ml/model/big', 'wb').write(os.urandom({} * 2**20))"
    with cloud(small_disk / "aws") as aws:
        too_large = train(aws, "too-large", own(write.format(64)))
        assert "OSError: [Errno 28] No space left on device" in too_large["FailureReason"]
        no_room_for_its_archive = train(aws, "packed", own(write.format(14)))
        reason = no_room_for_its_archive["FailureReason"]
        assert "No space left on device" in reason and "delete what is not needed there" in reason
        assert train(aws, "next", own("pass"))["TrainingJobStatus"] == "Completed"
        until(lambda: not remains(aws.state), 10)


def test_a_full_disk_of_the_engines_fails_the_job_with_the_fix(small_disk, tmp_path, monkeypatch):
    if not find_engine().is_podman:
        pytest.skip("docker's disk is its daemon's")
    form = "{{.Store.GraphDriverName}} {{.Store.GraphRoot}}"
    driver, store = find_engine().call("info", "--format", form).stdout.split()
    settings_file = tmp_path / "storage.conf"
    settings_file.write_text(f"""
[storage]
driver = "{driver}"
graphroot = "{small_disk}/graph"
runroot = "{small_disk}/run"
[storage.options]
additionalimagestores = ["{store}"]
""")
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(settings_file))
    with cloud(tmp_path / "aws") as aws:
        assert train(aws, "before", own("pass"))["TrainingJobStatus"] == "Completed"
        with contextlib.suppress(OSError), (small_disk / "full").open("wb", 0) as file:
            while True:
                file.write(bytes(1024))
        reason = train(aws, "full", own("pass"))["FailureReason"]
        assert reason.startswith("ClientError: CannotStartContainerError.")
        assert "container engine keeps its containers is full: run docker system prune" in reason
        until(lambda: not remains(aws.state), 10)


def test_a_tuning_job_searches_in_the_image(aws: Cloud) -> None:
    code = "import json; h = json.load(open('/opt/ml/input/config/hyperparameters.json')); "
    code += "print(f'loss={h[\"x\"]};')"
    trial = definition(StaticHyperParameters={"code": code})
    trial["AlgorithmSpecification"]["TrainingImage"] = URI
    done = tune(aws, "search", request(config(jobs=2), TrainingJobDefinition=trial))
    assert done["HyperParameterTuningJobStatus"] == "Completed"
    best = done["BestTrainingJob"]
    value = best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
    assert value == float(best["TunedHyperParameters"]["x"])


@pytest.mark.parametrize(
    "process",
    ["the client", "the container's first",
     pytest.param("the engine's monitor", marks=pytest.mark.sweep)],  # 20 s
)  # fmt: skip
def test_a_process_of_the_engine_that_is_killed_hangs_nothing(aws: Cloud, process: str) -> None:
    if not find_engine().is_podman and "monitor" in process:
        pytest.skip("docker's monitor is its daemon")
    name = f"killed-{len(process)}"
    aws.sm.create_training_job(TrainingJobName=name, **own(ENDLESS))
    until(lambda: "ready" in aws.log("Training", name))
    if "client" in process:
        [client] = aws.processes(name)
        client.kill()
    else:
        [container] = [found for found in remains(aws.state) if found.endswith("algo-1")]
        form = "{{.State.Pid}}" if "first" in process else "{{.State.ConmonPid}}"
        found = find_engine().call("inspect", "--format", form, container).stdout
        os.kill(int(found), signal.SIGKILL)
    done = aws.wait_for_training(name)
    assert done["TrainingJobStatus"] == "Failed"
    assert "client" not in process or "SIGKILL" in done["FailureReason"]
    until(lambda: not remains(aws.state), 20)
