"""Conditions, a job's output that decides, a job that fails, and its retry policies."""

from benchmarks.parity.case_table import case
from benchmarks.parity.recording import Run
from benchmarks.parity.small_steps import (
    condition,
    definition,
    equals,
    fail,
    given,
    joined,
    process,
)

BREAKS = "echo it broke >&2; exit 3"
CAUSES = ("Step.SERVICE_FAULT", "Step.THROTTLING", "SageMaker.JOB_INTERNAL_ERROR",
          "SageMaker.CAPACITY_ERROR", "SageMaker.RESOURCE_LIMIT")  # fmt: skip


@case()
def a_fail_step_ends_the_execution(run: Run) -> None:
    message = joined("a", 1, 2.5, True, {"Get": "Parameters.N"})
    number = {"Name": "N", "Type": "Integer", "DefaultValue": 7}
    run.create("fails", definition([fail("Stop", message)], number))
    run.executed("fails", **given(N="8"))


@case()
def conditions_choose_a_branch(run: Run) -> None:
    listed = {"Type": "In", "QueryValue": "b", "Values": ["a", "b"]}
    either = {"Type": "Or", "Conditions": [equals(1, 2), listed]}
    inner = condition("Inner", [{"Type": "Not", "Condition": either}], [], [fail("Else", "else")])
    run.create("chooses", definition([condition("Outer", [equals(1, 1.0)], [inner], [])]))
    run.executed("chooses")


@case(processing=1)
def a_jobs_output_decides(run: Run) -> None:
    report = '{"metrics": {"mse": {"value": 0.25}}}'
    files = [{"PropertyFileName": "Report", "OutputName": "out", "FilePath": "report.json"}]
    script = f"echo '{report}' > /opt/ml/processing/out/report.json"
    job = process(run, "Evaluate", script, PropertyFiles=files)
    file = {"Get": "Steps.Evaluate.PropertyFiles.Report"}
    value = {"Std:JsonGet": {"PropertyFile": file, "Path": "metrics.mse.value"}}
    check = {"Type": "LessThan", "LeftValue": value, "RightValue": 0.5}
    steps = [job, condition("Check", [check], [], [fail("No", "no")])]
    run.create("decides", definition(steps))
    run.executed("decides")


@case(processing=2)
def a_job_that_fails_and_is_retried(run: Run) -> None:
    job = process(run, "Breaks", BREAKS)
    run.create("breaks", definition([job, fail("After", "x") | {"DependsOn": ["Breaks"]}]))
    arn = run.executed("breaks")
    if arn and run.call("sagemaker.retry_pipeline_execution", PipelineExecutionArn=arn):
        run.ended(arn)


@case(processing=2)
def a_retry_policy_takes_a_scripts_error_or_not(run: Run) -> None:
    """The script's own error is none of the causes: AttemptCount says whether it is tried again."""
    policy = {"ExceptionType": list(CAUSES), "IntervalSeconds": 1, "MaxAttempts": 1}
    run.create("policy", definition([process(run, "Breaks", BREAKS, RetryPolicies=[policy])]))
    run.executed("policy")


@case()
def what_a_retry_policy_is_refused_for(run: Run) -> None:
    wrong = {
        "no-cause": {"ExceptionType": ["SageMaker.NO_SUCH"], "MaxAttempts": 2},
        "too-many": {"ExceptionType": [CAUSES[0]], "MaxAttempts": 99},
        "two-ends": {"ExceptionType": [CAUSES[0]], "MaxAttempts": 2, "ExpireAfterMin": 5},
    }
    for name, policy in wrong.items():
        run.create(name, definition([process(run, "Breaks", BREAKS, RetryPolicies=[policy])]))
