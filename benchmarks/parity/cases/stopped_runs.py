"""StopPipelineExecution while a job runs."""

from benchmarks.parity.case_table import case
from benchmarks.parity.execution_events import listen, note_events
from benchmarks.parity.recording import Run
from benchmarks.parity.small_steps import definition, fail, process

STOP = "sagemaker.stop_pipeline_execution"
STEPS = "sagemaker.list_pipeline_execution_steps"


@case(processing=1)
def a_running_job_is_stopped(run: Run) -> None:
    after = fail("After", "x") | {"DependsOn": ["Sleep"]}
    # It takes its time to end, so that both requests come while it does.
    script = "trap 'sleep 4; exit 0' TERM; sleep 600 & wait"
    run.create("sleeps", definition([process(run, "Sleep", script), after]))
    queue = listen(run, "sleeps")
    arn = run.start("sleeps")
    if not arn:
        return
    token = {"ClientRequestToken": run.name("stop-it-and-say-so-twice")}
    run.until(lambda: _job(run, arn), "the job")
    run.call(STOP, PipelineExecutionArn=arn, **token)
    run.call(STOP, PipelineExecutionArn=arn, **token)  # the same request again
    run.ended(arn)
    note_events(run, queue)  # in which order step and execution were Stopping and Stopped
    job = {"ProcessingJobName": _job(run, arn)}
    found = run.quietly("sagemaker.describe_processing_job", **job)
    shown = ("ProcessingJobStatus", "FailureReason", "ExitMessage")
    answer = {key: found[key] for key in shown if key in found}
    run.note("sagemaker.describe_processing_job", job, answer)
    run.call(STOP, PipelineExecutionArn=arn)


def _job(run: Run, arn: str) -> str | None:
    """Return the name of the step's job, when there is one."""
    steps = run.quietly(STEPS, PipelineExecutionArn=arn)["PipelineExecutionSteps"]
    metadata = steps[0].get("Metadata", {}) if steps else {}
    return metadata.get("ProcessingJob", {}).get("Arn", "").rpartition("/")[2] or None
