"""Which earlier run answers for a step: the step cache, and a selective execution."""

from benchmarks.parity.case_table import case
from benchmarks.parity.cases.branches_and_jobs import BREAKS
from benchmarks.parity.recording import Run
from benchmarks.parity.small_steps import (
    definition,
    fail,
    given,
    invoke,
    joined,
    make_function,
    process,
    text,
)

DAY = {"Enabled": True, "ExpireAfter": "P1D"}
SECOND = {"Enabled": True, "ExpireAfter": "PT1S"}


@case(processing=4)
def the_same_arguments_hit_until_they_expire(run: Run) -> None:
    script = {"Get": "Parameters.Script"}
    for_a_day = definition([process(run, "Job", script, CacheConfig=DAY)], text("Script", "true"))
    run.create("cached", for_a_day)
    run.executed("cached")
    run.executed("cached")
    run.executed("cached", **given(Script="exit 0"))
    for_a_second = for_a_day.replace('"P1D"', '"PT1S"')
    named = {"PipelineName": run.name("cached"), "PipelineDefinition": for_a_second}
    run.call("sagemaker.update_pipeline", **named)
    run.pause(1.1)
    run.executed("cached")


@case(processing=2)
def a_failed_run_does_not_hit(run: Run) -> None:
    run.create("failing", definition([process(run, "Job", BREAKS, CacheConfig=DAY)]))
    run.executed("failing")
    run.executed("failing")


@case()
def a_lambda_step_is_cached_or_not(run: Run) -> None:
    """The guide's list of cached steps has no Lambda step, and the SDK lets one have a cache."""
    steps = [invoke(make_function(run, "f"), "Ask", "a", CacheConfig=DAY)]
    run.create("asks", definition(steps))
    run.executed("asks")
    run.executed("asks")


@case()
def selected_steps_run_alone(run: Run) -> None:
    function = make_function(run, "f")
    told = {"Get": "Steps.First.OutputParameters['text']"}
    steps = [invoke(function, "First", "a"), invoke(function, "Second", told)]
    last = {"Get": "Steps.Second.OutputParameters['text']"}
    run.create("three", definition([*steps, fail("Last", joined(told, last))]))
    source = {"SourcePipelineExecutionArn": run.executed("three")}
    for names in (["Second"], ["First", "Last"], ["Nobody"]):
        chosen = {"SelectedSteps": [{"StepName": name} for name in names]}
        run.executed("three", SelectiveExecutionConfig=chosen | source)
    chosen = {"SelectedSteps": [{"StepName": "Second"}]}
    run.start("three", SelectiveExecutionConfig=chosen)
