"""Training jobs against AWS's container contract, with small scripts as the algorithm."""

import io
import json
import tarfile
from pathlib import Path

import botocore.exceptions
import pytest

from tests.trainyard.emulator.harness import PATIENCE, Cloud, Gate, channel, cloud, training, until

pytestmark = pytest.mark.long

ALIVE = "InProgress"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        for number in range(4):
            running.put(f"raw/{number}.txt", f"file {number}")
        yield running


def archive_of(aws: Cloud, job: str, name: str = "model") -> dict[str, bytes]:
    data = aws.get(f"models/{job}/output/{name}.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}


def test_the_contract(aws: Cloud) -> None:
    script = """
        cd /opt/ml/input/config
        cat hyperparameters.json > /opt/ml/model/hp.json
        cat inputdataconfig.json > /opt/ml/model/channels.json
        cat resourceconfig.json > /opt/ml/model/$HOSTNAME.json
        ls /opt/ml/input/data/all > /opt/ml/model/all-$HOSTNAME
        ls /opt/ml/input/data/part > /opt/ml/model/part-$HOSTNAME
        env | sort > /opt/ml/output/data/env-$HOSTNAME
        echo loss=0.5; echo loss=0.25
    """
    definitions = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    request = training(script, nodes=2) | {
        "HyperParameters": {"lr": "0.1"},
        "Environment": {"MINE": "yes"},
        "InputDataConfig": [
            channel("all", "s3://bkt/raw"),
            channel("part", "s3://bkt/raw", S3DataDistributionType="ShardedByS3Key"),
        ],
    }
    request["AlgorithmSpecification"]["MetricDefinitions"] = definitions
    done = aws.train("contract", "", **request)
    assert done["TrainingJobStatus"] == done["SecondaryStatus"] == "Completed"
    model = archive_of(aws, "contract")
    assert json.loads(model["hp.json"]) == {"lr": "0.1"}
    assert json.loads(model["channels.json"])["part"]["S3DistributionType"] == "ShardedByS3Key"
    resources = json.loads(model["algo-2.json"])
    assert (resources["current_host"], resources["hosts"]) == ("algo-2", ["algo-1", "algo-2"])
    assert model["all-algo-1"].split() == [b"0.txt", b"1.txt", b"2.txt", b"3.txt"]
    assert model["part-algo-1"].split() + model["part-algo-2"].split() == [
        *(b"0.txt", b"2.txt"),
        *(b"1.txt", b"3.txt"),
    ]
    env = dict(
        line.split("=", 1)
        for line in archive_of(aws, "contract", "output")["env-algo-2"].decode().splitlines()
        if "=" in line
    )
    assert env["TRAINING_JOB_NAME"] == "contract"
    assert (env["MINE"], env["AWS_REGION"], env["HOME"]) == ("yes", "us-east-1", "/opt/home")
    assert not [name for name in env if "SECRET" in name or "ACCESS_KEY" in name]
    metric = done["FinalMetricDataList"][0]
    assert (metric["MetricName"], metric["Value"]) == ("loss", 0.25)
    assert (
        done["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bkt/models/contract/output/model.tar.gz"
    )
    assert aws.log("Training", "contract") == ["loss=0.5", "loss=0.25"]
    statuses = [t["Status"] for t in done["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert done["TrainingStartTime"] <= done["TrainingEndTime"]


def test_the_users_credentials_and_home_stay_outside(aws: Cloud, monkeypatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    monkeypatch.setenv("MY_TOKEN", "topsecret")
    aws.train("clean", "env; ls -a ~; python3 -c 'import os; print(os.path.expanduser(chr(126)))'")
    lines = aws.log("Training", "clean")
    assert not [line for line in lines if "topsecret" in line]
    assert lines[-1] == "/opt/home"


def test_a_file_without_the_failed_jobs_model(aws: Cloud) -> None:
    script = "echo half > /opt/ml/model/w; echo 'corpus is empty' > /opt/ml/output/failure; exit 3"
    done = aws.train("fails", script)
    assert done["TrainingJobStatus"] == "Failed"
    assert done["FailureReason"] == "AlgorithmError: corpus is empty, exit code: 3"
    assert aws.keys("models/fails") == []


def test_a_failure_file_fails_the_job_even_with_exit_status_zero(aws: Cloud) -> None:
    done = aws.train("quiet", "echo lost a batch > /opt/ml/output/failure")
    assert done["FailureReason"] == "AlgorithmError: lost a batch, exit code: 0"


def test_a_command_that_does_not_exist(aws: Cloud) -> None:
    request = training("")
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["no-such-program"]
    done = aws.train("nocommand", "", **request)
    assert "no-such-program" in done["FailureReason"]
    assert done["FailureReason"].endswith("exit code: 127")


def test_checkpoints_come_back_and_go_up_also_when_the_job_fails(aws: Cloud) -> None:
    aws.put("ck/step-1", "one")
    script = "cd /opt/ml/checkpoints; cat step-1; echo two > step-2; exit 1"
    done = aws.train("resume", script, CheckpointConfig={"S3Uri": "s3://bkt/ck"})
    assert done["TrainingJobStatus"] == "Failed"
    assert aws.log("Training", "resume")[0] == "one"
    assert aws.get("ck/step-2") == b"two\n"


@pytest.mark.parametrize("local", [None, "/opt/ml/output/elsewhere"])
def test_tensorboards_files_go_up_under_the_jobs_name(aws: Cloud, local: str | None) -> None:
    folder = local or "/opt/ml/output/tensorboard"
    script = f"echo events > {folder}/events.1; exit 1"
    config = {"S3OutputPath": "s3://bkt/boards/"} | ({"LocalPath": local} if local else {})
    name = f"board-{'own' if local else 'default'}"
    aws.train(name, script, TensorBoardOutputConfig=config)
    assert aws.get(f"boards/{name}/tensorboard-output/events.1") == b"events\n"


@pytest.mark.slow
def test_a_prefix_without_a_slash_brings_its_neighbours(aws: Cloud) -> None:
    """As on AWS: sdk#3612 and #87 of channels, syne-tune#363 of checkpoints."""
    for key in ("split/test/a.csv", "split/test_small/c.csv", "ck/ASHA-1/x", "ck/ASHA-10/y"):
        aws.put(key, key)
    script = "cd /opt/ml/input/data/c && find . -type f | sort > /opt/ml/model/channel;"
    script += "cd /opt/ml/checkpoints && find . -type f | sort > /opt/ml/model/checkpoints"
    for end, channels, checkpoints in (
        ("", b"./a.csv\n./test_small/c.csv\n", b"./ASHA-10/y\n./x\n"),
        ("/", b"./a.csv\n", b"./x\n"),
    ):
        name = f"prefix{len(end)}"
        aws.train(
            name,
            script,
            InputDataConfig=[channel("c", f"s3://bkt/split/test{end}")],
            CheckpointConfig={"S3Uri": f"s3://bkt/ck/ASHA-1{end}"},
        )
        assert archive_of(aws, name) == {"channel": channels, "checkpoints": checkpoints}


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("OutputDataConfig", {"S3OutputPath": "s3://nowhere/x"}),
        ("CheckpointConfig", {"S3Uri": "s3://nowhere/x"}),
        ("TensorBoardOutputConfig", {"S3OutputPath": "s3://nowhere/x"}),
    ],
)
def test_a_bucket_that_does_not_exist_is_named_before_the_job_runs(aws, field, place) -> None:
    done = aws.train(f"nowhere-{field}", "exit 7", **{field: place})
    assert "Unable to upload to s3://nowhere/x, of " + field in done["FailureReason"]
    assert "create nowhere" in done["FailureReason"]


def test_names_that_are_not_utf_8_stay_in_an_archive_and_are_no_keys(aws: Cloud) -> None:
    script = "cd /opt/ml/{}; x=$(printf 'caf\\351'); echo 1 > \"$x\"; echo 2 > b; sleep 1.2"
    aws.train("latin", script.format("model"))
    assert archive_of(aws, "latin") == {"caf\udce9": b"1\n", "b": b"2\n"}
    output = {"S3OutputPath": "s3://bkt/models", "CompressionType": "NONE"}
    done = aws.train("latin-keys", script.format("model"), OutputDataConfig=output)
    assert (
        r"the file b'caf\xe9' for s3://bkt/models/latin-keys/output/model/ has"
        in done["FailureReason"]
    )
    assert aws.keys("models/latin-keys") == []
    checkpoints = {"S3Uri": "s3://bkt/latin-ck"}
    done = aws.train("latin-ck", script.format("checkpoints"), CheckpointConfig=checkpoints)
    assert r"the file b'caf\xe9' for s3://bkt/latin-ck has a name" in done["FailureReason"]
    assert aws.keys("latin-ck") == ["latin-ck/b"]


def test_two_slashes_in_a_key_end_the_job_in_awss_words(aws: Cloud) -> None:
    aws.put("raw//x", "")
    found = aws.train("slashes", "true", InputDataConfig=[channel("c", "s3://bkt/raw")])
    aws.s3.delete_object(Bucket="bkt", Key="raw//x")
    assert found["FailureReason"] == (
        "ClientError: Data download failed:Failed to download data. S3 key: s3://bkt/raw//x has an "
        "illegal char sub-sequence '//' in it"
    )


def test_checkpoints_go_up_while_the_job_runs(aws: Cloud) -> None:
    script = "echo one > /opt/ml/checkpoints/step-1; sleep 600"
    request = training(script) | {"CheckpointConfig": {"S3Uri": "s3://bkt/live"}}
    aws.sm.create_training_job(TrainingJobName="live", **request)
    until(lambda: aws.keys("live/step-1"))
    assert aws.sm.describe_training_job(TrainingJobName="live")["TrainingJobStatus"] == ALIVE
    aws.sm.stop_training_job(TrainingJobName="live")
    assert aws.trained("live")["TrainingJobStatus"] == "Stopped"


def test_stop_gives_time_to_save_the_model(aws: Cloud) -> None:
    script = "trap 'echo saved > /opt/ml/model/w; exit 0' TERM; echo ready; sleep 600 & wait"
    aws.sm.create_training_job(TrainingJobName="stop", **training(script))
    until(lambda: aws.processes("stop") and aws.log("Training", "stop") == ["ready"])
    aws.sm.stop_training_job(TrainingJobName="stop")
    done = aws.trained("stop")
    assert (done["TrainingJobStatus"], done["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert archive_of(aws, "stop") == {"w": b"saved\n"}
    with pytest.raises(botocore.exceptions.ClientError, match="is in status Stopped"):
        aws.sm.stop_training_job(TrainingJobName="stop")


def test_stop_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    script = "trap '' TERM; setsid sleep 600 & setsid -f sleep 601; sleep 602"
    with cloud(tmp_path, stop_grace=0.1) as aws:
        aws.sm.create_training_job(TrainingJobName="stubborn", **training(script))
        family = aws.family("stubborn", 3)
        aws.sm.stop_training_job(TrainingJobName="stubborn")
        assert aws.trained("stubborn")["TrainingJobStatus"] == "Stopped"
        assert not [process for process in family if process.is_running()]


HANDLER = """import pathlib, signal, time
heard = pathlib.Path('/opt/ml/model/heard')
signal.signal(signal.SIGTERM, lambda *_: heard.touch())
print('ready', flush=True)
while True: time.sleep(0.05)
"""


def test_sigterm_does_not_reach_the_script_behind_a_shell(tmp_path: Path) -> None:
    """AWS's shells and drivers do not pass it on: aws/sagemaker-training-toolkit#125, #173."""
    script = f'python -c "{HANDLER}"; echo after > /opt/ml/model/after'
    with cloud(tmp_path, stop_grace=0.5) as aws:
        aws.sm.create_training_job(TrainingJobName="deaf", **training(script))
        until(lambda: aws.log("Training", "deaf") == ["ready"])
        aws.sm.stop_training_job(TrainingJobName="deaf")
        assert aws.trained("deaf")["TrainingJobStatus"] == "Stopped"
        assert not aws.keys("models/deaf")
        [line] = [line for line in aws.all_lines("Training", "deaf") if "SIGTERM" in line]
        assert line.startswith("[emulator] SIGTERM reaches the first process of this container")
        assert "killed in 0.5 s" in line


@pytest.mark.parametrize("limit", [1, 3600])
def test_a_first_process_without_a_handler_goes_on_until_it_is_killed(
    tmp_path: Path, limit: int
) -> None:
    """Process 1 of a container gets no signal that it does not handle: pid_namespaces(7)."""
    with cloud(tmp_path, stop_grace=PATIENCE) as aws:
        gate, lines = Gate(aws), lambda: aws.all_lines("Training", "goes-on")
        script = f"echo ready; {gate.wait}; echo whole > /opt/ml/model/w"
        request = training(script) | {"StoppingCondition": {"MaxRuntimeInSeconds": limit}}
        aws.sm.create_training_job(TrainingJobName="goes-on", **request)
        until(lambda: "ready" in lines())
        if limit > 1:
            aws.sm.stop_training_job(TrainingJobName="goes-on")
        until(lambda: any("SIGTERM" in line for line in lines()))
        gate.open()
        assert aws.trained("goes-on")["TrainingJobStatus"] == "Stopped"
        assert archive_of(aws, "goes-on") == {"w": b"whole\n"}


def test_the_runtime_limit(aws: Cloud) -> None:
    done = aws.train("limit", "sleep 600", StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert done["TrainingJobStatus"] == "Stopped"
    assert done["SecondaryStatus"] == "MaxRuntimeExceeded"


def test_killing_a_node_ends_the_job_and_leaves_nothing(aws: Cloud) -> None:
    script = "echo half > /opt/ml/model/w; (setsid sleep 600 &); sleep 601 & wait"
    aws.sm.create_training_job(TrainingJobName="kill", **training(script, nodes=2))
    nodes = until(lambda: n if len(n := aws.processes("kill")) == 2 else None)
    family = aws.family("kill", 6)
    nodes[1].kill()
    done = aws.trained("kill")
    assert done["TrainingJobStatus"] == "Failed"
    assert "algo-2 was killed by signal 9 (SIGKILL)" in done["FailureReason"]
    assert not [process for process in family if process.is_running()]
    assert aws.keys("models/kill") == []


def test_two_jobs_use_port_7777_at_once(aws: Cloud) -> None:
    listen = "import socket,time; s=socket.create_server(('',7777)); print('mine'); time.sleep(1)"
    for name in ("one", "two"):
        request = training(f'python3 -c "{listen}"')
        aws.sm.create_training_job(TrainingJobName=f"port-{name}", **request)
    assert aws.trained("port-one")["TrainingJobStatus"] == "Completed"
    assert aws.trained("port-two")["TrainingJobStatus"] == "Completed"


def test_an_uncompressed_model(aws: Cloud) -> None:
    output = {"S3OutputPath": "s3://bkt/models/", "CompressionType": "NONE"}
    done = aws.train("plain", "echo w > /opt/ml/model/w", OutputDataConfig=output)
    assert done["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bkt/models/plain/output/model/"
    assert aws.get("models/plain/output/model/w") == b"w\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"TrainingImage": "me/own:1"}, "image 'me/own:1' is not known"),
        ({"ContainerEntrypoint": None}, "no ContainerEntrypoint"),
        ({"TrainingImage": None, "AlgorithmName": "a"}, "use TrainingImage"),
        ({"MetricDefinitions": [{"Name": "l", "Regex": "("}]}, "Regex of 'l'"),
    ],
)
def test_what_cannot_run_is_refused_at_once(aws: Cloud, change: dict, message: str) -> None:
    request = training("true")
    spec = request["AlgorithmSpecification"] | change
    request["AlgorithmSpecification"] = {k: v for k, v in spec.items() if v is not None}
    with pytest.raises(botocore.exceptions.ClientError, match=message):
        aws.sm.create_training_job(TrainingJobName="refused", **request)
    with pytest.raises(botocore.exceptions.ClientError, match="not found"):
        aws.sm.describe_training_job(TrainingJobName="refused")


def test_the_log_says_that_rules_are_not_evaluated(aws: Cloud) -> None:
    rule = {"RuleConfigurationName": "ProfilerReport", "RuleEvaluatorImage": "rules:latest"}
    aws.train("ruled", "true", ProfilerRuleConfigurations=[rule])
    streams = aws.logs.describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs")
    [name] = [s["logStreamName"] for s in streams["logStreams"] if "ruled/" in s["logStreamName"]]
    events = aws.logs.get_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamName=name, startFromHead=True
    )
    assert any("rules are not evaluated here" in event["message"] for event in events["events"])


def test_names_are_unique_and_jobs_are_listed(aws: Cloud) -> None:
    aws.train("listed", "true", Tags=[{"Key": "team", "Value": "nlp"}])
    with pytest.raises(botocore.exceptions.ClientError, match="ResourceInUse"):
        aws.train("listed", "true")
    found = aws.sm.list_training_jobs(NameContains="listed", StatusEquals="Completed")
    summary = found["TrainingJobSummaries"][0]
    assert summary["TrainingJobName"] == "listed"
    tags = aws.sm.list_tags(ResourceArn=summary["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "nlp"}]
    waiter = aws.sm.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName="listed")
