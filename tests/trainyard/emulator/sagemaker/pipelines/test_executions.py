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

import psutil
import pytest
from botocore.exceptions import ClientError

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
from tests.trainyard.emulator.sagemaker.builders import (
    job_of,
    join_values,
    register_step,
    run,
    statuses,
    wait_for_steps,
)
from trainyard.emulator.cloudwatch import metric_store
from trainyard.emulator.cloudwatch.metric_store import Metrics
from trainyard.emulator.sagemaker.jobs.job import STOP_GRACE
from trainyard.emulator.sagemaker.pipelines import step_cache
from trainyard.emulator.sagemaker.pipelines.executions import Executions
from trainyard.emulator.server import serve_emulator
from trainyard.language.definition_document import END_STATUSES

pytestmark = pytest.mark.long

CACHE = {"CacheConfig": {"Enabled": True, "ExpireAfter": "P1D"}}
FILE = {"PropertyFileName": "metrics", "OutputName": "out", "FilePath": "metrics.json"}
SHARDS = "Steps.Shard.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"
MODEL = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}
MAX = {"Get": "Parameters.Max"}
FLOAT = {"Name": "Max", "Type": "Float", "DefaultValue": 0.5}
TAGS = [{"Key": "team", "Value": "x"}]
OUT = "/opt/ml/processing/out"


def reading(name: str, script: str, uri: object, **more: object) -> dict:
    """Return a processing step with one input, at /opt/ml/processing/in."""
    step = process_step(name, script, **more)
    step["Arguments"]["ProcessingInputs"] = [s3_input("in", uri)]
    return step


def test_shard_train_evaluate_gate_register(aws: Cloud) -> None:
    """A complete pipeline, with values passed from step to step."""
    aws.put("raw/a.txt", "text")
    where = join_values("/", "s3://bkt/runs", {"Get": "Execution.PipelineExecutionId"})
    copy = f"cp /opt/ml/processing/in/* {OUT}/"
    shard = reading("Shard", copy, "s3://bkt/raw", outputs={"out": where})
    script = "cat /opt/ml/input/data/train/a.txt > /opt/ml/model/w; echo loss=0.4"
    more = {
        "InputDataConfig": [channel("train", {"Get": SHARDS})],
        "HyperParameters": {"epochs": {"Get": "Parameters.Epochs"}},
        "Tags": TAGS,
    }
    train = train_step("Train", script, arguments=more)
    script = "tar -xzf /opt/ml/processing/in/model.tar.gz && grep text w && "
    script += f"""echo '{{"eval": {{"loss": [{{"mean": 0.4}}]}}}}' > {OUT}/metrics.json"""
    output = {"outputs": {"out": "s3://bkt/eval"}, "PropertyFiles": [FILE]}
    evaluate = reading("Evaluate", script, MODEL, **output)
    loss = json_get("Evaluate", "metrics", "eval.loss[0].mean")
    metadata = {"CustomerMetadataProperties": {"loss": join_values("", loss)}}
    register = register_step(MODEL, Tags=TAGS, **metadata)
    stop = fail_step("Stop", join_values(" ", "loss", loss, "is not below", MAX))
    gate = condition_step("Gate", [compare("LessThan", loss, MAX)], [register], [stop])
    epochs = {"Name": "Epochs", "Type": "String", "DefaultValue": "3"}

    answer, steps = run(aws, "whole", [gate, evaluate, train, shard], Parameters=[FLOAT, epochs])
    assert answer["PipelineExecutionStatus"] == "Succeeded", answer
    assert list(steps) == ["Shard", "Train", "Evaluate", "Gate", "Register"]
    assert steps["Gate"]["Metadata"] == {"Condition": {"Outcome": "True"}}
    arn = steps["Register"]["Metadata"]["RegisterModel"]["Arn"]
    package = aws.sm.describe_model_package(ModelPackageName=arn)
    assert package["CustomerMetadataProperties"] == {"loss": "0.4"}
    group = aws.sm.describe_model_package_group(ModelPackageGroupName="group")
    trained = steps["Train"]["Metadata"]["TrainingJob"]["Arn"]
    for arn in (group["ModelPackageGroupArn"], trained):
        assert aws.sm.list_tags(ResourceArn=arn)["Tags"] == TAGS
    job, source = trained.rpartition("/")[2], answer["PipelineExecutionArn"]
    artifact = package["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]
    assert artifact == f"s3://bkt/models/{job}/output/model.tar.gz"
    assert job.startswith(f"pipelines-{source.rpartition('/')[2]}-Train-")

    selected = [{"StepName": name} for name in ("Gate", "Register", "Stop")]
    config = {"SelectedSteps": selected, "SourcePipelineExecutionArn": source}
    arn = aws.start("whole", {"Max": "0.1"}, SelectiveExecutionConfig=config)
    steps, message = wait_for_steps(aws, arn, "Failed"), "loss 0.4 is not below 0.1"
    assert steps["Stop"]["FailureReason"] == message
    assert steps["Stop"]["Metadata"] == {"Fail": {"ErrorMessage": message}}
    assert f"Stop: {message}" in aws.wait_for_execution(arn)["FailureReason"]
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
    spans = [(step["StartTime"], step["EndTime"]) for step in wait_for_steps(aws, arn).values()]
    assert max(start for start, _ in spans) < min(end for _, end in spans)


def test_the_limit_on_parallel_steps(aws: Cloud) -> None:
    aws.create("narrow", [process_step(name, "sleep 0.2") for name in "ABC"])
    arn = aws.start("narrow", ParallelismConfiguration={"MaxParallelExecutionSteps": 1})
    spans = sorted(
        (step["StartTime"], step["EndTime"]) for step in wait_for_steps(aws, arn).values()
    )
    assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))


def test_after_a_failure_running_steps_finish_and_no_others_start(aws: Cloud) -> None:
    begun, end = Gate(aws), Gate(aws)
    steps = [
        process_step("Bad", f"{begun.wait}; exit 7"),
        process_step("Slow", end.wait),
        process_step("AfterBad", "true", ("Bad",)),
        process_step("AfterSlow", "true", ("Slow",)),
    ]
    aws.create("fails", steps)
    arn = aws.start("fails")
    until(lambda: len(aws.steps(arn)) == 2)
    begun.open()
    until(lambda: aws.steps(arn).get("Bad", {}).get("StepStatus") == "Failed")
    end.open()
    steps = wait_for_steps(aws, arn, "Failed")
    assert statuses(steps) == {"Bad": "Failed", "Slow": "Succeeded"}
    start = "Step failure: One or multiple steps failed. Bad: ClientError: Alg"
    assert aws.wait_for_execution(arn)["FailureReason"].startswith(start)


def test_triggers_run_steps_on_a_failure(aws: Cloud) -> None:
    bad = process_step("Bad", "exit 1")
    on_failure = process_step("OnFailure", "true", ({"Step": "Bad", "Trigger": "Failed"},))
    on_success = process_step("OnSuccess", "true", ("Bad",))
    answer, steps = run(aws, "triggers", [bad, on_failure, on_success])
    assert set(steps) == {"Bad", "OnFailure"}
    assert answer["PipelineExecutionStatus"] == "CompletedWithFailures"


def test_what_only_the_run_knows_fails_the_step_with_the_reason(aws: Cloud) -> None:
    """A number in a field of text, and a property file that the step did not write."""
    script = f"""echo '{{"loss": 0.5}}' > {OUT}/metrics.json"""
    none = {"PropertyFileName": "none", "OutputName": "out", "FilePath": "none.json"}
    output = {"outputs": {"out": "s3://bkt/number"}, "PropertyFiles": [FILE, none]}
    rate = {"HyperParameters": {"lr": json_get("Evaluate", "metrics", "loss")}}
    check = compare("LessThan", json_get("Evaluate", "none", "loss"), 1)
    after = [{"Step": "Train", "Trigger": "Any"}]
    steps = [
        process_step("Evaluate", script, **output),
        train_step("Train", "true", arguments=rate),
        condition_step("Gate", [check], [], [], DependsOn=after),
    ]
    _, steps = run(aws, "unknown", steps)
    start = "ClientError: Failed to invoke sagemaker:CreateTrainingJob. Error Details:"
    assert steps["Train"]["FailureReason"].startswith(start)
    assert steps["Gate"]["FailureReason"].startswith("property file 'none' of step 'Evaluate'")


def test_a_cache_hit_and_what_ends_it(aws: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    step = process_step("A", f"date +%N > {OUT}/x", outputs={"out": "s3://bkt/cached"}, **CACHE)
    first, _ = run(aws, "cache", [step])
    made = aws.get("cached/x")
    hit = {"SourcePipelineExecutionArn": first["PipelineExecutionArn"]}
    _, steps = aws.run("cache")
    assert steps["A"]["CacheHitResult"] == hit
    assert (steps["A"]["StepStatus"], aws.get("cached/x")) == ("Succeeded", made)
    aws.s3.delete_object(Bucket="bkt", Key="cached/x")
    assert "CacheHitResult" not in aws.run("cache")[1]["A"]
    assert aws.get("cached/x") != made
    aws.put("cached/x", "somebody else's")
    assert "CacheHitResult" not in aws.run("cache")[1]["A"]
    later = time.time() + 24 * 3600
    monkeypatch.setattr(step_cache, "time", SimpleNamespace(time=lambda: later))
    assert "CacheHitResult" not in aws.run("cache")[1]["A"]


def test_stop_ends_the_job_and_starts_nothing_more(aws: Cloud) -> None:
    aws.create("stop", [process_step("A", "sleep 40"), process_step("B", "true", ("A",))])
    arn = aws.start("stop")
    processes = aws.processes(job_of(aws, arn))
    aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn)
    assert statuses(wait_for_steps(aws, arn, "Stopped")) == {"A": "Stopped"}
    assert not [process for process in processes if process.is_running()]
    with pytest.raises(ClientError, match="is in status Stopped"):
        aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn)


def test_retry_runs_what_failed_and_keeps_the_rest(aws: Cloud) -> None:
    read = reading("Read", "cat /opt/ml/processing/in/*", "s3://bkt/later", depends_on=("Good",))
    answer, before = run(aws, "retry", [process_step("Good", "true"), read])
    assert "No S3 objects found" in before["Read"]["FailureReason"]
    aws.put("later/x", "now")
    arn = answer["PipelineExecutionArn"]
    aws.sm.retry_pipeline_execution(PipelineExecutionArn=arn)
    after = wait_for_steps(aws, arn)
    assert after["Good"]["StartTime"] == before["Good"]["StartTime"]
    assert after["Read"]["StepStatus"] == "Succeeded"


def test_a_retry_policy_tries_again_after_a_fault_of_the_service(aws: Cloud) -> None:
    """The bytes of an input are missing on the emulator's disk, and come back."""
    aws.put("fault/x", "x" * 100)
    data = aws.endpoint.app.objects.locate_file("bkt", "fault/x")
    hidden = data.rename(data.with_suffix(".hidden"))
    policy = {"ExceptionType": ["SageMaker.JOB_INTERNAL_ERROR"], "MaxAttempts": 5}
    policy |= {"IntervalSeconds": 1, "BackoffRate": 1.0}
    script = "cat /opt/ml/processing/in/x"
    aws.create("fault", [reading("A", script, "s3://bkt/fault/x", RetryPolicies=[policy])])
    arn = aws.start("fault")
    until(lambda: aws.steps(arn).get("A", {}).get("AttemptCount") == 2)
    hidden.rename(data)
    assert wait_for_steps(aws, arn)["A"]["AttemptCount"] in (2, 3)


def test_start_checks_parameters_and_is_idempotent(aws: Cloud) -> None:
    aws.create("start", [process_step("A", "true")], Parameters=[FLOAT])
    with pytest.raises(ClientError, match="unknown pipeline parameter 'Min'"):
        aws.start("start", {"Min": "1"})
    one, again = (
        aws.start("start", {"Max": "0.25"}, ClientRequestToken="0" * 32) for _ in range(2)
    )
    assert one == again
    got = aws.sm.list_pipeline_parameters_for_execution(PipelineExecutionArn=one)
    assert got["PipelineParameters"] == [{"Name": "Max", "Value": "0.25"}]
    listed = aws.sm.list_pipeline_executions(PipelineName="start")["PipelineExecutionSummaries"]
    assert [entry["PipelineExecutionArn"] for entry in listed] == [one]
    text = aws.sm.describe_pipeline_definition_for_execution(PipelineExecutionArn=one)
    assert json.loads(text["PipelineDefinition"])["Parameters"] == [FLOAT]
    wait_for_steps(aws, one)


def test_a_restart_remembers(tmp_path: Path) -> None:
    with cloud(tmp_path) as aws:
        bad = process_step("B", "exit 1", ("A",))
        answer, steps = run(aws, "p", [process_step("A", "true", **CACHE), bad])
    with cloud(tmp_path) as aws:
        arn = answer["PipelineExecutionArn"]
        assert aws.wait_for_execution(arn)["FailureReason"] == answer["FailureReason"]
        assert aws.steps(arn) == steps
        job = job_of(aws, arn, "B")
        assert aws.sm.describe_processing_job(ProcessingJobName=job)["FailureReason"]
        _, steps = aws.run("p")
        assert steps["A"]["CacheHitResult"]["SourcePipelineExecutionArn"] == arn


def test_closing_the_emulator_does_not_wait_for_the_grace_of_a_stopped_job(tmp_path: Path) -> None:
    with serve_emulator(tmp_path) as endpoint:
        aws = Cloud(endpoint, tmp_path)
        aws.create("p", [process_step("A", "trap '' TERM; sleep 600; sleep 601")])
        arn = aws.start("p")
        family = aws.family(job_of(aws, arn), 2)
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
    monkeypatch.setattr(metric_store, "record_execution", slow)
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
def test_killing_the_emulator_leaves_no_process_and_no_running_state(tmp_path, isolation: str):
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
        assert statuses(wait_for_steps(aws, arn, "Failed")) == {"A": "Failed"}
        assert "the emulator ended" in aws.wait_for_execution(arn)["FailureReason"]
        job = job_of(aws, arn)
        described = aws.sm.describe_processing_job(ProcessingJobName=job)
        assert described["ProcessingJobStatus"] == "Failed"
        assert not list((tmp_path / "jobs" / job).glob("algo-*"))


def trials(aws: Cloud, experiment: str) -> dict[str, list[dict]]:
    """Return the trials of an experiment, each with its components."""
    found = [
        t["TrialName"] for t in aws.sm.list_trials(ExperimentName=experiment)["TrialSummaries"]
    ]
    return {name: components(aws, TrialName=name) for name in found}


def components(aws: Cloud, **of: str) -> list[dict]:
    return aws.sm.list_trial_components(**of)["TrialComponentSummaries"]


def test_an_experiment_has_a_trial_per_execution_and_a_component_per_job(aws: Cloud) -> None:
    """The names are the SDK's defaults; the last run reuses the experiment."""
    steps = [process_step("Work", "true"), process_step("Fails", "exit 3", ("Work",))]
    names = {"ExperimentName": {"Get": "Execution.PipelineName"}}
    ends = [run(aws, "tracked", steps, PipelineExperimentConfig=names), aws.run("tracked")]
    found = trials(aws, "tracked")
    assert found.keys() == {end["PipelineExecutionArn"].rpartition("/")[2] for end, _ in ends}
    for end, made in ends:
        config = end["PipelineExperimentConfig"]
        assert config["ExperimentName"] == "tracked"
        jobs = {n: s["Metadata"]["ProcessingJob"]["Arn"] for n, s in made.items()}
        said = {c["TrialComponentSource"]["SourceArn"]: c for c in found[config["TrialName"]]}
        assert {arn: c["Status"]["PrimaryStatus"] for arn, c in said.items()} == {
            jobs["Work"]: "Completed",
            jobs["Fails"]: "Failed",
        }
        job = aws.sm.describe_processing_job(ProcessingJobName=jobs["Work"].rpartition("/")[2])
        assert job["ExperimentConfig"] == config
        [component] = components(aws, SourceArn=jobs["Work"])
        name = component["TrialComponentName"]
        whole = aws.sm.describe_trial_component(TrialComponentName=name)
        source = {"SourceArn": jobs["Work"], "SourceType": "SageMakerProcessingJob"}
        assert (whole["Source"], whole["EndTime"]) == (source, job["ProcessingEndTime"])
    answer, _ = run(aws, "untracked", [fail_step("F", "x")], PipelineExperimentConfig=None)
    assert "PipelineExperimentConfig" not in answer
    experiments = aws.sm.list_experiments(MaxResults=100)["ExperimentSummaries"]
    assert "untracked" not in [each["ExperimentName"] for each in experiments]


def test_a_job_of_its_own_is_of_the_trial_that_it_names(aws: Cloud) -> None:
    aws.sm.create_experiment(ExperimentName="alone")
    config = {"ExperimentName": "alone", "TrialComponentDisplayName": "shown"}
    aws.process("of-the-trial", "true", ExperimentConfig=config)
    [component] = trials(aws, "alone")["of-the-trial"]
    assert component["DisplayName"] == "shown"
    for name, wrong in (("TrialName", "none"), ("ExperimentName", "none"), ("RunName", "r")):
        with pytest.raises(ClientError, match="Could not find|RunName is not implemented"):
            aws.process("refused", "true", ExperimentConfig={name: wrong})
