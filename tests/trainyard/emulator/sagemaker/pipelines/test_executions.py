"""Executions of definitions: order, branches, failures, cache, stop, restart."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import botocore.exceptions
import pytest

from tests.trainyard.emulator.harness import (
    PATIENCE,
    Cloud,
    Gate,
    channel,
    cloud,
    compare,
    condition_step,
    fail_step,
    json_get,
    process_step,
    s3_input,
    train_step,
    until,
)
from trainyard.emulator.cloudwatch import metric_store
from trainyard.emulator.cloudwatch.metric_store import Metrics
from trainyard.emulator.sagemaker.jobs.job import STOP_GRACE
from trainyard.emulator.sagemaker.pipelines import step_cache
from trainyard.emulator.sagemaker.pipelines.executions import Executions
from trainyard.emulator.server import serve
from trainyard.language.definition_document import END_STATUSES

pytestmark = pytest.mark.long

CACHE = {"CacheConfig": {"Enabled": True, "ExpireAfter": "P1D"}}
FILE = {"PropertyFileName": "metrics", "OutputName": "out", "FilePath": "metrics.json"}
FLOAT = {"Name": "Max", "Type": "Float", "DefaultValue": 0.5}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        running.put("raw/a.txt", "text")
        yield running


def uri_of(step: str) -> dict:
    return {"Get": f"Steps.{step}.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"}


def test_shard_train_evaluate_gate_register(aws: Cloud) -> None:
    """A complete pipeline, with values passed from step to step."""
    where = {
        "Std:Join": {
            "On": "/",
            "Values": ["s3://bkt/runs", {"Get": "Execution.PipelineExecutionId"}],
        }
    }
    shard = process_step(
        "Shard", "cp /opt/ml/processing/in/* /opt/ml/processing/out/", outputs={"out": where}
    )
    shard["Arguments"]["ProcessingInputs"] = [s3_input("in", "s3://bkt/raw")]
    train = train_step(
        "Train", "cat /opt/ml/input/data/train/a.txt > /opt/ml/model/w; echo loss=0.4"
    )
    train["Arguments"]["InputDataConfig"] = [channel("train", uri_of("Shard"))]
    train["Arguments"]["HyperParameters"] = {"epochs": {"Get": "Parameters.Epochs"}}
    train["Arguments"]["Tags"] = [{"Key": "team", "Value": "x"}]
    evaluate = process_step(
        "Evaluate",
        "tar -xzf /opt/ml/processing/model/model.tar.gz && grep text w && "
        'echo \'{"eval": {"loss": [{"mean": 0.4}]}}\' > /opt/ml/processing/out/metrics.json',
        outputs={"out": "s3://bkt/eval"},
        PropertyFiles=[FILE],
    )
    model = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}
    evaluate["Arguments"]["ProcessingInputs"] = [s3_input("model", model)]
    loss = json_get("Evaluate", "metrics", "eval.loss[0].mean")
    image = train["Arguments"]["AlgorithmSpecification"]["TrainingImage"]
    register = {
        "Name": "Register",
        "Type": "RegisterModel",
        "Arguments": {
            "ModelPackageGroupName": "group",
            "Tags": [{"Key": "team", "Value": "x"}],
            "InferenceSpecification": {
                "Containers": [{"Image": image, "ModelDataUrl": model}],
                "SupportedContentTypes": ["application/json"],
                "SupportedResponseMIMETypes": ["application/json"],
            },
            "ModelApprovalStatus": "PendingManualApproval",
            "CustomerMetadataProperties": {"loss": {"Std:Join": {"On": "", "Values": [loss]}}},
        },
    }
    message = {
        "Std:Join": {"On": " ", "Values": ["loss", loss, "is not below", {"Get": "Parameters.Max"}]}
    }
    gate = condition_step(
        "Gate",
        [compare("LessThan", loss, {"Get": "Parameters.Max"})],
        [register],
        [fail_step("Stop", message)],
    )
    epochs = {"Name": "Epochs", "Type": "String", "DefaultValue": "3"}
    aws.create("whole", [gate, evaluate, train, shard], Parameters=[FLOAT, epochs])

    answer, steps = aws.run("whole")
    assert answer["PipelineExecutionStatus"] == "Succeeded", answer
    assert list(steps) == ["Shard", "Train", "Evaluate", "Gate", "Register"]
    assert steps["Gate"]["Metadata"] == {"Condition": {"Outcome": "True"}}
    package = aws.sm.describe_model_package(
        ModelPackageName=steps["Register"]["Metadata"]["RegisterModel"]["Arn"]
    )
    assert package["CustomerMetadataProperties"] == {"loss": "0.4"}
    group = aws.sm.describe_model_package_group(ModelPackageGroupName="group")
    for arn in (group["ModelPackageGroupArn"], steps["Train"]["Metadata"]["TrainingJob"]["Arn"]):
        assert aws.sm.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "x"}]
    artifact = package["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]
    job = steps["Train"]["Metadata"]["TrainingJob"]["Arn"].rpartition("/")[2]
    assert artifact == f"s3://bkt/models/{job}/output/model.tar.gz"
    assert job.startswith(f"pipelines-{answer['PipelineExecutionArn'].rpartition('/')[2]}-Train-")

    answer, steps = aws.run("whole", {"Max": "0.1"})
    assert answer["PipelineExecutionStatus"] == "Failed"
    assert steps["Stop"]["FailureReason"] == "loss 0.4 is not below 0.1"
    assert steps["Stop"]["Metadata"] == {"Fail": {"ErrorMessage": "loss 0.4 is not below 0.1"}}
    assert "Stop: loss 0.4 is not below 0.1" in answer["FailureReason"]
    assert "Register" not in steps
    found = aws.sm.list_model_packages(ModelPackageGroupName="group")["ModelPackageSummaryList"]
    assert len(found) == 1


def test_independent_steps_run_at_once(aws: Cloud) -> None:
    """Each step waits until all have begun."""
    gate = Gate(aws)
    aws.create("parallel", [process_step(name, gate.wait) for name in "ABC"])
    arn = aws.start("parallel")
    until(lambda: len(aws.steps(arn)) == 3)
    gate.open()
    aws.ended(arn)
    steps = aws.steps(arn)
    assert max(s["StartTime"] for s in steps.values()) < min(s["EndTime"] for s in steps.values())


def test_the_limit_on_parallel_steps(aws: Cloud) -> None:
    aws.create("narrow", [process_step(name, "sleep 0.2") for name in "ABC"])
    arn = aws.start("narrow", ParallelismConfiguration={"MaxParallelExecutionSteps": 1})
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Succeeded"
    spans = sorted((s["StartTime"], s["EndTime"]) for s in aws.steps(arn).values())
    assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))


def test_after_a_failure_running_steps_finish_and_no_others_start(
    aws: Cloud,
) -> None:
    begun, end = Gate(aws), Gate(aws)
    aws.create(
        "fails",
        [
            process_step("Bad", f"{begun.wait}; exit 7"),
            process_step("Slow", end.wait),
            process_step("AfterBad", "true", ("Bad",)),
            process_step("AfterSlow", "true", ("Slow",)),
        ],
    )
    arn = aws.start("fails")
    until(lambda: len(aws.steps(arn)) == 2)
    begun.open()
    until(lambda: aws.steps(arn).get("Bad", {}).get("StepStatus") == "Failed")
    end.open()
    answer, steps = aws.ended(arn), aws.steps(arn)
    assert answer["PipelineExecutionStatus"] == "Failed"
    assert answer["FailureReason"].startswith(
        "Step failure: One or multiple steps failed. Bad: ClientError: Alg"
    )
    statuses = {name: step["StepStatus"] for name, step in steps.items()}
    assert statuses == {"Bad": "Failed", "Slow": "Succeeded"}


def test_triggers_run_steps_on_a_failure(aws: Cloud) -> None:
    aws.create(
        "triggers",
        [
            process_step("Bad", "exit 1"),
            process_step("OnFailure", "true", ({"Step": "Bad", "Trigger": "Failed"},)),
            process_step("OnSuccess", "true", ("Bad",)),
        ],
    )
    answer, steps = aws.run("triggers")
    assert set(steps) == {"Bad", "OnFailure"}
    assert answer["PipelineExecutionStatus"] == "CompletedWithFailures"


def test_values_that_cannot_be_had_fail_the_step_with_the_reason(aws: Cloud) -> None:
    evaluate = process_step(
        "Evaluate", "true", outputs={"out": "s3://bkt/none"}, PropertyFiles=[FILE]
    )
    check = compare("LessThan", json_get("Evaluate", "metrics", "loss"), 1)
    aws.create("missing", [evaluate, condition_step("Gate", [check], [], [])])
    _, steps = aws.run("missing")
    assert steps["Gate"]["FailureReason"].startswith("property file 'metrics' of step 'Evaluate'")


def test_a_number_that_only_the_run_knows_is_refused_in_a_string_field(aws: Cloud) -> None:
    script = """echo '{"loss": 0.5}' > /opt/ml/processing/out/metrics.json"""
    output = {"out": "s3://bkt/number"}
    evaluate = process_step("Evaluate", script, outputs=output, PropertyFiles=[FILE])
    rate = {"HyperParameters": {"lr": json_get("Evaluate", "metrics", "loss")}}
    aws.create("typed", [evaluate, train_step("Train", "true", arguments=rate)])
    _, steps = aws.run("typed")
    assert steps["Train"]["FailureReason"].startswith(
        "ClientError: Failed to invoke sagemaker:CreateTrainingJob. Error Details:"
    )


def test_a_cache_hit_and_what_ends_it(aws: Cloud) -> None:
    script = "date +%N > /opt/ml/processing/out/x"
    aws.create("cache", [process_step("A", script, outputs={"out": "s3://bkt/cached"}, **CACHE)])
    first, _ = aws.run("cache")
    made = aws.get("cached/x")
    second, steps = aws.run("cache")
    assert steps["A"]["CacheHitResult"] == {
        "SourcePipelineExecutionArn": first["PipelineExecutionArn"]
    }
    assert (steps["A"]["StepStatus"], aws.get("cached/x")) == ("Succeeded", made)
    aws.s3.delete_object(Bucket="bkt", Key="cached/x")
    _, steps = aws.run("cache")
    assert "CacheHitResult" not in steps["A"]
    assert aws.get("cached/x") != made
    aws.put("cached/x", "somebody else's")
    _, steps = aws.run("cache")
    assert "CacheHitResult" not in steps["A"]


def test_an_old_run_is_no_hit(aws: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"CacheConfig": {"Enabled": True, "ExpireAfter": "PT1H"}}
    aws.create("expires", [process_step("A", "true", **config)])
    aws.run("expires")
    later = time.time() + 3600
    monkeypatch.setattr(step_cache, "time", SimpleNamespace(time=lambda: later))
    _, steps = aws.run("expires")
    assert "CacheHitResult" not in steps["A"]


def test_stop_ends_the_job_and_starts_nothing_more(aws: Cloud) -> None:
    aws.create("stop", [process_step("A", "sleep 40"), process_step("B", "true", ("A",))])
    arn = aws.start("stop")
    job = until(lambda: aws.steps(arn).get("A", {}).get("Metadata", {}).get("ProcessingJob"))
    processes = aws.processes(job["Arn"].rpartition("/")[2])
    aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn)
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Stopped"
    assert {n: s["StepStatus"] for n, s in aws.steps(arn).items()} == {"A": "Stopped"}
    assert not [process for process in processes if process.is_running()]
    with pytest.raises(botocore.exceptions.ClientError, match="is in status Stopped"):
        aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn)


def test_retry_runs_what_failed_and_keeps_the_rest(aws: Cloud) -> None:
    read = process_step("Read", "cat /opt/ml/processing/in/*", ("Good",))
    read["Arguments"]["ProcessingInputs"] = [s3_input("in", "s3://bkt/later")]
    aws.create("retry", [process_step("Good", "true"), read])
    answer, before = aws.run("retry")
    assert "No S3 objects found" in before["Read"]["FailureReason"]
    aws.put("later/x", "now")
    arn = answer["PipelineExecutionArn"]
    aws.sm.retry_pipeline_execution(PipelineExecutionArn=arn)
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Succeeded"
    after = aws.steps(arn)
    assert after["Good"]["StartTime"] == before["Good"]["StartTime"]
    assert after["Read"]["StepStatus"] == "Succeeded"


def test_a_retry_policy_tries_again_after_a_fault_of_the_service(aws: Cloud) -> None:
    """The fault is real: the bytes of an input are missing on the emulator's disk, and come
    back.
    """
    aws.put("fault/x", "x" * 100)
    data = aws.endpoint.app.objects.path("bkt", "fault/x")
    hidden = data.rename(data.with_suffix(".hidden"))
    policy = {
        "ExceptionType": ["SageMaker.JOB_INTERNAL_ERROR"],
        "IntervalSeconds": 1,
        "BackoffRate": 1.0,
        "MaxAttempts": 5,
    }
    step = process_step("A", "cat /opt/ml/processing/in/x", RetryPolicies=[policy])
    step["Arguments"]["ProcessingInputs"] = [s3_input("in", "s3://bkt/fault/x")]
    aws.create("fault", [step])
    arn = aws.start("fault")
    until(lambda: aws.steps(arn).get("A", {}).get("AttemptCount") == 2)
    hidden.rename(data)
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Succeeded"
    assert aws.steps(arn)["A"]["AttemptCount"] in (2, 3)


def test_start_checks_parameters_and_is_idempotent(aws: Cloud) -> None:
    aws.create("start", [process_step("A", "true")], Parameters=[FLOAT])
    for given, message in (
        ({"Min": "1"}, "unknown pipeline parameter 'Min'"),
        ({"Max": "x"}, "not of type Float"),
    ):
        with pytest.raises(botocore.exceptions.ClientError, match=message):
            aws.start("start", given)
    token = "0" * 32
    one = aws.start("start", {"Max": "0.25"}, ClientRequestToken=token)
    assert aws.start("start", {"Max": "0.25"}, ClientRequestToken=token) == one
    got = aws.sm.list_pipeline_parameters_for_execution(PipelineExecutionArn=one)
    assert got["PipelineParameters"] == [{"Name": "Max", "Value": "0.25"}]
    listed = aws.sm.list_pipeline_executions(PipelineName="start")["PipelineExecutionSummaries"]
    assert [entry["PipelineExecutionArn"] for entry in listed] == [one]
    text = aws.sm.describe_pipeline_definition_for_execution(PipelineExecutionArn=one)
    assert json.loads(text["PipelineDefinition"])["Parameters"] == [FLOAT]
    aws.ended(one)


def test_a_restart_remembers(tmp_path: Path) -> None:
    with cloud(tmp_path) as aws:
        aws.create("p", [process_step("A", "true", **CACHE), process_step("B", "exit 1", ("A",))])
        answer, steps = aws.run("p")
    with cloud(tmp_path) as aws:
        arn = answer["PipelineExecutionArn"]
        again = aws.sm.describe_pipeline_execution(PipelineExecutionArn=arn)
        assert again["FailureReason"] == answer["FailureReason"]
        assert aws.steps(arn) == steps
        job = steps["B"]["Metadata"]["ProcessingJob"]["Arn"].rpartition("/")[2]
        assert aws.sm.describe_processing_job(ProcessingJobName=job)["FailureReason"]
        _, steps = aws.run("p")
        assert steps["A"]["CacheHitResult"]["SourcePipelineExecutionArn"] == arn


def test_closing_the_emulator_does_not_wait_for_the_grace_of_a_stopped_job(tmp_path: Path) -> None:
    with serve(tmp_path) as endpoint:
        aws = Cloud(endpoint, tmp_path)
        aws.create("p", [process_step("A", "trap '' TERM; sleep 600; sleep 601")])
        arn = aws.start("p")
        job = until(lambda: aws.steps(arn).get("A", {}).get("Metadata", {}).get("ProcessingJob"))
        family = aws.family(job["Arn"].rpartition("/")[2], 2)
        started = time.monotonic()
    assert time.monotonic() - started < STOP_GRACE
    assert not [process for process in family if process.is_running()]


def test_closing_the_emulator_waits_for_who_hears_of_an_execution_that_has_just_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status changes to its end before the metrics are written; closing waits for this."""
    ends, joined, closed = threading.Event(), threading.Event(), threading.Event()
    heard = []

    def slow(metrics: Metrics, record: dict, step: str | None) -> None:
        if step is None and record["answer"]["PipelineExecutionStatus"] in END_STATUSES:
            ends.set()
            joined.wait(PATIENCE)
            heard.append("closed" if closed.wait(0.3) else "open")  # never, so long as one waits

    def join(executions: Executions) -> None:
        joined.set()
        wait_for_all(executions)

    def close(metrics: Metrics) -> None:
        closed.set()
        close_store(metrics)

    wait_for_all, close_store = Executions.join, Metrics.close
    monkeypatch.setattr(metric_store, "execution", slow)
    monkeypatch.setattr(Executions, "join", join)
    monkeypatch.setattr(Metrics, "close", close)
    with cloud(tmp_path) as aws:
        aws.create("p", [fail_step("A", "as it is told to")])
        aws.start("p")
        assert ends.wait(PATIENCE)
    assert heard == ["open"]


SERVER = """
import sys
from pathlib import Path
from tests.trainyard.emulator.harness import cloud, process_step, until
with cloud(Path(sys.argv[1])) as aws:
    aws.create("p", [process_step("A", "setsid sleep 600 & sleep 601")])
    arn = aws.start("p")
    job = until(lambda: aws.steps(arn).get("A", {}).get("Metadata", {}).get("ProcessingJob"))
    print(arn, *[p.pid for p in aws.processes(job["Arn"].rpartition("/")[2])], flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("isolation", ["namespaces", "relocate"])
def test_killing_the_emulator_leaves_no_process_and_no_running_state(
    tmp_path: Path, isolation: str
) -> None:
    import psutil

    env = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[5]),
        "TRAINYARD_EMULATOR_ISOLATION": isolation,
    }
    command = [sys.executable, "-c", SERVER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, **pipes) as server:
        arn, *pids = server.stdout.readline().split()
        family = psutil.Process(server.pid).children(recursive=True)
        assert {int(pid) for pid in pids} <= {process.pid for process in family}
        server.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    with cloud(tmp_path) as aws:
        answer = aws.sm.describe_pipeline_execution(PipelineExecutionArn=arn)
        assert answer["PipelineExecutionStatus"] == "Failed"
        assert "the emulator ended" in answer["FailureReason"]
        step = aws.steps(arn)["A"]
        assert step["StepStatus"] == "Failed"
        job = step["Metadata"]["ProcessingJob"]["Arn"].rpartition("/")[2]
        described = aws.sm.describe_processing_job(ProcessingJobName=job)
        assert described["ProcessingJobStatus"] == "Failed"
        assert not list((tmp_path / "jobs" / job).glob("algo-*"))


# experiments


def trials(aws: Cloud, experiment: str) -> dict[str, list[dict]]:
    """Return the trials of an experiment, each with its components."""
    found = aws.sm.list_trials(ExperimentName=experiment)["TrialSummaries"]
    asked = (each["TrialName"] for each in found)
    return {
        name: aws.sm.list_trial_components(TrialName=name)["TrialComponentSummaries"]
        for name in asked
    }


def test_an_experiment_has_a_trial_per_execution_and_a_component_per_job(aws: Cloud) -> None:
    """The names are the SDK's defaults; the last run reuses the experiment."""
    steps = [process_step("Work", "true"), process_step("Fails", "exit 3", ("Work",))]
    names = {"ExperimentName": {"Get": "Execution.PipelineName"}}
    aws.create("tracked", steps, PipelineExperimentConfig=names)
    ends = [aws.run("tracked") for _ in range(2)]
    found = trials(aws, "tracked")
    runs = [end["PipelineExecutionArn"].rpartition("/")[2] for end, _ in ends]
    assert found.keys() == set(runs)
    for end, made in ends:
        trial = end["PipelineExperimentConfig"]["TrialName"]
        assert end["PipelineExperimentConfig"]["ExperimentName"] == "tracked"
        jobs = {n: s["Metadata"]["ProcessingJob"]["Arn"] for n, s in made.items()}
        said = {c["TrialComponentSource"]["SourceArn"]: c for c in found[trial]}
        assert said.keys() == set(jobs.values())
        status = {n: said[arn]["Status"]["PrimaryStatus"] for n, arn in jobs.items()}
        assert status == {"Work": "Completed", "Fails": "Failed"}
        job = aws.sm.describe_processing_job(ProcessingJobName=jobs["Work"].rpartition("/")[2])
        assert job["ExperimentConfig"] == end["PipelineExperimentConfig"]
        by_job = aws.sm.list_trial_components(SourceArn=jobs["Work"])["TrialComponentSummaries"]
        [component] = by_job
        whole = aws.sm.describe_trial_component(TrialComponentName=component["TrialComponentName"])
        assert whole["Source"] == {
            "SourceArn": jobs["Work"],
            "SourceType": "SageMakerProcessingJob",
        }
        assert whole["EndTime"] == job["ProcessingEndTime"]


def test_without_a_configuration_there_is_no_experiment(aws: Cloud) -> None:
    aws.create("untracked", [fail_step("F", "x")], PipelineExperimentConfig=None)
    assert "PipelineExperimentConfig" not in aws.run("untracked")[0]
    experiments = aws.sm.list_experiments(MaxResults=100)["ExperimentSummaries"]
    assert "untracked" not in [each["ExperimentName"] for each in experiments]


def test_a_job_of_its_own_is_of_the_trial_that_it_names(aws: Cloud) -> None:
    aws.sm.create_experiment(ExperimentName="alone")
    config = {"ExperimentName": "alone", "TrialComponentDisplayName": "shown"}
    aws.process("of-the-trial", "true", ExperimentConfig=config)
    [component] = trials(aws, "alone")["of-the-trial"]
    assert component["DisplayName"] == "shown"
    for name, wrong in (("TrialName", "none"), ("ExperimentName", "none"), ("RunName", "r")):
        with pytest.raises(
            botocore.exceptions.ClientError, match="Could not find|RunName is not implemented"
        ):
            aws.process("refused", "true", ExperimentConfig={name: wrong})
