"""Training jobs against AWS's container contract, with small scripts as the algorithm."""

import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import PATIENCE, Cloud, Gate, channel, cloud, training, until
from tests.trainyard.emulator.sagemaker.builders import unpack_files
from trainyard import metric_regex
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.jobs.training_job import Metrics

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def raw(aws: Cloud) -> None:
    for number in range(4):
        aws.put(f"raw/{number}.txt", f"file {number}")


@pytest.fixture(scope="module")
def listed(aws: Cloud) -> dict:
    """Description of a job with tags, rules and a model that is not compressed."""
    rule = {"RuleConfigurationName": "ProfilerReport", "RuleEvaluatorImage": "rules:latest"}
    more = {
        "OutputDataConfig": {"S3OutputPath": "s3://bkt/models/", "CompressionType": "NONE"},
        "ProfilerRuleConfigurations": [rule],
        "Tags": [{"Key": "team", "Value": "nlp"}],
    }
    return aws.train("listed", "echo w > /opt/ml/model/w", **more)


def archive_of(aws: Cloud, job: str, name: str = "model") -> dict[str, bytes]:
    return unpack_files(aws.get(f"models/{job}/output/{name}.tar.gz"))


def test_the_contract(aws: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "MY_TOKEN"):
        monkeypatch.setenv(name, "topsecret")
    script = """
        cd /opt/ml/input/config
        cat hyperparameters.json > /opt/ml/model/hp.json
        cat inputdataconfig.json > /opt/ml/model/channels.json
        cat resourceconfig.json > /opt/ml/model/$HOSTNAME.json
        ls /opt/ml/input/data/all > /opt/ml/model/all-$HOSTNAME
        ls /opt/ml/input/data/part > /opt/ml/model/part-$HOSTNAME
        env | sort > /opt/ml/output/data/env-$HOSTNAME
        ls -a ~ >> /opt/ml/output/data/env-$HOSTNAME
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
    parts = [model[f"part-algo-{node}"].split() for node in (1, 2)]
    assert parts == [[b"0.txt", b"2.txt"], [b"1.txt", b"3.txt"]]
    said = archive_of(aws, "contract", "output")["env-algo-2"].decode()
    env = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    assert env["TRAINING_JOB_NAME"] == "contract"
    assert (env["MINE"], env["AWS_REGION"], env["HOME"]) == ("yes", "us-east-1", "/opt/home")
    assert not [name for name in env if "SECRET" in name or "ACCESS_KEY" in name]
    assert "topsecret" not in said, "the user's credentials stay outside"
    metric = done["FinalMetricDataList"][0]
    assert (metric["MetricName"], metric["Value"]) == ("loss", 0.25)
    uri = "s3://bkt/models/contract/output/model.tar.gz"
    assert done["ModelArtifacts"]["S3ModelArtifacts"] == uri
    assert aws.log("Training", "contract") == ["loss=0.5", "loss=0.25"]
    statuses = [t["Status"] for t in done["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert done["TrainingStartTime"] <= done["TrainingEndTime"]


@pytest.mark.parametrize(("status", "local"), [(0, None), (3, "/opt/ml/output/elsewhere")])
def test_a_job_with_a_message_fails_without_a_model_and_all_else_goes_up(
    aws: Cloud, status: int, local: str | None
) -> None:
    name = f"fails-{status}"
    aws.put(f"ck/{name}/step-1", "one")
    script = f"""
        echo half > /opt/ml/model/w; echo no corpus > /opt/ml/output/failure
        cat /opt/ml/checkpoints/step-1; echo two > /opt/ml/checkpoints/step-2
        echo events > {local or "/opt/ml/output/tensorboard"}/events.1; exit {status}
    """
    boards = {"S3OutputPath": "s3://bkt/boards/"} | ({"LocalPath": local} if local else {})
    more = {"CheckpointConfig": {"S3Uri": f"s3://bkt/ck/{name}"}, "TensorBoardOutputConfig": boards}
    done = aws.train(name, "", **training(script) | more)
    assert done["TrainingJobStatus"] == "Failed"
    assert done["FailureReason"] == f"AlgorithmError: no corpus, exit code: {status}"
    assert aws.keys(f"models/{name}") == []
    assert aws.log("Training", name) == ["one"]
    assert aws.get(f"ck/{name}/step-2") == b"two\n"
    assert aws.get(f"boards/{name}/tensorboard-output/events.1") == b"events\n"


def test_a_command_that_does_not_exist(aws: Cloud) -> None:
    request = training("")
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["no-such-program"]
    done = aws.train("nocommand", "", **request)
    assert "no-such-program" in done["FailureReason"]
    assert done["FailureReason"].endswith("exit code: 127")


@pytest.mark.slow
def test_a_prefix_without_a_slash_brings_its_neighbours(aws: Cloud) -> None:
    """As on AWS: sdk#3612 and #87 of channels, syne-tune#363 of checkpoints."""
    for key in ("split/test/a.csv", "split/test_small/c.csv", "ck/ASHA-1/x", "ck/ASHA-10/y"):
        aws.put(key, key)
    script = "cd /opt/ml/input/data/c && find . -type f | sort > /opt/ml/model/channel;"
    script += "cd /opt/ml/checkpoints && find . -type f | sort > /opt/ml/model/checkpoints"
    channels = {"": b"./a.csv\n./test_small/c.csv\n", "/": b"./a.csv\n"}
    checkpoints = {"": b"./ASHA-10/y\n./x\n", "/": b"./x\n"}
    for end in ("", "/"):
        source = [channel("c", f"s3://bkt/split/test{end}")]
        config = {"S3Uri": f"s3://bkt/ck/ASHA-1{end}"}
        aws.train(f"prefix{len(end)}", script, InputDataConfig=source, CheckpointConfig=config)
        found = archive_of(aws, f"prefix{len(end)}")
        assert found == {"channel": channels[end], "checkpoints": checkpoints[end]}


@pytest.mark.parametrize(
    ("field", "member"),
    [
        ("OutputDataConfig", "S3OutputPath"),
        ("CheckpointConfig", "S3Uri"),
        ("TensorBoardOutputConfig", "S3OutputPath"),
    ],
)
def test_a_bucket_that_does_not_exist_is_named_before_the_job_runs(aws, field, member) -> None:
    done = aws.train(f"nowhere-{field}", "exit 7", **{field: {member: "s3://nowhere/x"}})
    assert "Unable to upload to s3://nowhere/x, of " + field in done["FailureReason"]
    assert "create nowhere" in done["FailureReason"]


def test_names_that_are_not_utf_8_stay_in_an_archive_and_are_no_keys(aws: Cloud) -> None:
    script = "cd /opt/ml/{}; x=$(printf 'caf\\351'); echo 1 > \"$x\"; echo 2 > b"
    aws.train("latin", script.format("model"))
    assert archive_of(aws, "latin") == {"caf\udce9": b"1\n", "b": b"2\n"}
    output = {"S3OutputPath": "s3://bkt/models", "CompressionType": "NONE"}
    done = aws.train("latin-keys", script.format("model"), OutputDataConfig=output)
    place = "s3://bkt/models/latin-keys/output/model/"
    assert rf"the file b'caf\xe9' for {place} has" in done["FailureReason"]
    assert aws.keys("models/latin-keys") == []
    checkpoints = {"S3Uri": "s3://bkt/latin-ck"}
    script = script.format("checkpoints") + "; sleep 1.2"
    done = aws.train("latin-ck", script, CheckpointConfig=checkpoints)
    assert r"the file b'caf\xe9' for s3://bkt/latin-ck has a name" in done["FailureReason"]
    assert aws.keys("latin-ck") == ["latin-ck/b"]


def test_two_slashes_in_a_key_end_the_job_in_awss_words(aws: Cloud) -> None:
    aws.put("two//x", "")
    found = aws.train("slashes", "true", InputDataConfig=[channel("c", "s3://bkt/two/")])
    start = "ClientError: Data download failed:Failed to download data. S3 key: s3://bkt/two//x has"
    assert found["FailureReason"] == f"{start} an illegal char sub-sequence '//' in it"


def test_checkpoints_go_up_while_the_job_runs_and_stop_gives_time_to_save_the_model(aws: Cloud):
    script = "trap 'echo saved > /opt/ml/model/w; exit 0' TERM; echo ready;"
    script += "echo one > /opt/ml/checkpoints/step-1; sleep 600 & wait"
    live = {"CheckpointConfig": {"S3Uri": "s3://bkt/live"}}
    aws.sm.create_training_job(TrainingJobName="stop", **training(script), **live)
    until(lambda: aws.keys("live/step-1"))
    assert aws.sm.describe_training_job(TrainingJobName="stop")["TrainingJobStatus"] == "InProgress"
    assert aws.log("Training", "stop") == ["ready"]
    aws.sm.stop_training_job(TrainingJobName="stop")
    done = aws.wait_for_training("stop")
    assert (done["TrainingJobStatus"], done["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert archive_of(aws, "stop") == {"w": b"saved\n"}
    with pytest.raises(ClientError, match="is in status Stopped"):
        aws.sm.stop_training_job(TrainingJobName="stop")


def test_stop_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    script = "trap '' TERM; setsid sleep 600 & setsid -f sleep 601; sleep 602"
    with cloud(tmp_path, stop_grace=0.1) as aws:
        aws.sm.create_training_job(TrainingJobName="stubborn", **training(script))
        family = aws.family("stubborn", 3)
        aws.sm.stop_training_job(TrainingJobName="stubborn")
        assert aws.wait_for_training("stubborn")["TrainingJobStatus"] == "Stopped"
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
        assert aws.wait_for_training("deaf")["TrainingJobStatus"] == "Stopped"
        assert not aws.keys("models/deaf")
        [line] = [line for line in aws.all_lines("Training", "deaf") if "SIGTERM" in line]
        assert line.startswith("[emulator] SIGTERM reaches the first process of this container")
        assert "killed in 0.5 s" in line


@pytest.mark.parametrize("limit", [1, 3600])
def test_a_first_process_without_a_handler_goes_on_until_it_is_killed(tmp_path: Path, limit: int):
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
        done = aws.wait_for_training("goes-on")
        secondary = "Stopped" if limit > 1 else "MaxRuntimeExceeded"
        assert (done["TrainingJobStatus"], done["SecondaryStatus"]) == ("Stopped", secondary)
        assert archive_of(aws, "goes-on") == {"w": b"whole\n"}


def test_killing_a_node_ends_the_job_and_leaves_nothing(aws: Cloud) -> None:
    script = "echo half > /opt/ml/model/w; (setsid sleep 600 &); sleep 601 & wait"
    aws.sm.create_training_job(TrainingJobName="kill", **training(script, nodes=2))
    nodes = until(lambda: n if len(n := aws.processes("kill")) == 2 else None)
    family = aws.family("kill", 6)
    nodes[1].kill()
    done = aws.wait_for_training("kill")
    assert done["TrainingJobStatus"] == "Failed"
    assert "algo-2 was killed by signal 9 (SIGKILL)" in done["FailureReason"]
    assert not [process for process in family if process.is_running()]
    assert aws.keys("models/kill") == []


def test_two_jobs_use_port_7777_at_once(aws: Cloud) -> None:
    listen = "import socket,time; s=socket.create_server(('',7777)); print('mine'); time.sleep(1)"
    for name in ("one", "two"):
        request = training(f'python3 -c "{listen}"')
        aws.sm.create_training_job(TrainingJobName=f"port-{name}", **request)
    for name in ("one", "two"):
        assert aws.wait_for_training(f"port-{name}")["TrainingJobStatus"] == "Completed"


def test_an_uncompressed_model(aws: Cloud, listed: dict) -> None:
    artifacts = listed["ModelArtifacts"]["S3ModelArtifacts"]
    assert artifacts == "s3://bkt/models/listed/output/model/"
    assert aws.get("models/listed/output/model/w") == b"w\n"


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
    with pytest.raises(ClientError, match=message):
        aws.sm.create_training_job(TrainingJobName="refused", **request)
    with pytest.raises(ClientError, match="not found"):
        aws.sm.describe_training_job(TrainingJobName="refused")


def test_the_log_says_that_rules_are_not_evaluated(aws: Cloud, listed: dict) -> None:
    lines = aws.all_lines("Training", "listed")
    assert any("rules are not evaluated here" in line for line in lines)


def test_names_are_unique_and_jobs_are_listed(aws: Cloud, listed: dict) -> None:
    with pytest.raises(ClientError, match="ResourceInUse"):
        aws.train("listed", "true")
    found = aws.sm.list_training_jobs(NameContains="listed", StatusEquals="Completed")
    summary = found["TrainingJobSummaries"][0]
    assert summary["TrainingJobName"] == "listed"
    tags = aws.sm.list_tags(ResourceArn=summary["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "nlp"}]
    waiter = aws.sm.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName="listed")


# metrics


def test_the_latest_value_of_each_metric() -> None:
    rate = {"Name": "lr", "Regex": r"lr=(\S+)"}
    metrics = Metrics([{"Name": "loss", "Regex": r"loss=([0-9.e+-]+)"}, rate])
    for line in ("step 1 loss=2.5 lr=1e-3", "step 2 loss=1.25", "other", "loss=nan? lr=nan"):
        metrics.record_values(line)
    assert {m["MetricName"]: m["Value"] for m in metrics.list_final_metrics()} == {
        "loss": 1.25,
        "lr": 0.001,
    }


@pytest.mark.parametrize("regex", ["loss=(", "loss=[0-9]+"])
def test_a_regex_that_cannot_work_is_refused(regex: str) -> None:
    with pytest.raises(ApiError, match="'loss'"):
        Metrics([{"Name": "loss", "Regex": regex}])


def test_an_expression_that_takes_too_long_is_told_once_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(metric_regex, "SECONDS_AHEAD", 0.02)
    endless = {"Name": "endless", "Regex": "(a|aa)+$"}
    metrics = Metrics([endless, {"Name": "loss", "Regex": r"loss=(\S+)"}])
    assert metrics.record_values(f"loss=0.5 {'a' * 60}b") == [("loss", 0.5)]
    [warning] = metrics.report_slow_patterns()
    assert "'(a|aa)+$'" in warning and metrics.report_slow_patterns() == []
