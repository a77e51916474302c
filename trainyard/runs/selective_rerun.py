"""Start a pipeline again from a step: the step and its dependents run, and the results that they
need are reused from an earlier execution, the "source".

This uses StartPipelineExecution's SelectiveExecutionConfig, on AWS as well as on the emulator.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import RecipeError, suggest_nearest
from trainyard.language.definition_document import END_STATUSES, Step, iter_steps
from trainyard.language.evaluation import parse_arn_variables
from trainyard.language.expressions import index_parameters, iter_known_references
from trainyard.runs.execution import Execution, find_latest_execution

MOST = 50
"""Largest number of steps in a SelectiveExecutionConfig (botocore: SelectedStepList)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunPlan:
    """The plan of a start from a step: what runs and what is reused."""

    pipeline: str
    source: str
    """ARN of the execution whose results are reused."""

    runs: Mapping[str, str]
    """Mapping of the name of a step that runs to the reason."""

    reused_steps: Mapping[str, str]
    """Mapping of the name of a step whose result is reused to the reason."""

    unneeded_steps: tuple[str, ...]
    """Names of steps that neither run nor are needed."""

    parameters: Mapping[str, str]
    """Parameters of the source execution that the pipeline still has."""

    fixed_parameters: Mapping[str, str]
    """The parameters that a reused step refers to: it keeps the result of their old values."""

    @property
    def selective_execution_config(self) -> dict[str, Any]:
        """The SelectiveExecutionConfig for StartPipelineExecution."""
        selection = [{"StepName": name} for name in self.runs]
        return {"SelectedSteps": selection, "SourcePipelineExecutionArn": self.source}

    def iter_explanations(self, new_parameters: Mapping[str, str]) -> Iterator[str]:
        """Iterate over lines that explain the plan to the user.

        ``new_parameters`` are the parameters that the user changes.
        """
        yield f"again from {self.source}"
        for word, steps in (("reused", self.reused_steps), ("runs", self.runs)):
            for name, reason in steps.items():
                yield f"  {word:<7} {name}: {reason}"
        if self.unneeded_steps:
            yield f"  left    {', '.join(self.unneeded_steps)}: not needed"
        for name in sorted(new_parameters.keys() & self.fixed_parameters.keys()):
            yield (
                f"! {name}={new_parameters[name]} does not change the reused steps, although at "
                "least one of them refers to it"
            )


def plan_rerun(
    step: str, execution: str | None, pipeline: str | None, region: str | None = None
) -> RerunPlan:
    """Return the plan of a start from a step, without starting anything.

    Args:
        step: name of the step to start from.
        execution: ARN of the execution whose results are reused; None for the newest one of
            ``pipeline``.
        pipeline: name of the pipeline; None for that of the execution, or of the newest one.
        region: region of the pipeline; None for that of the environment.

    Raises:
        RecipeError: the step does not exist, too many steps would run, or the execution has not
            ended, is of another pipeline, or has no result for a step that must be reused.
        ServiceError: the execution or pipeline does not exist, or AWS refused.
    """
    source = execution or find_latest_execution(pipeline, region)
    name = parse_arn_variables(source)["PipelineName"]
    if pipeline not in (None, name):
        raise RecipeError(f"--execution {source}: is not an execution of pipeline {pipeline}")
    with service_errors(f"reading pipeline {name}"):
        description = create_client("sagemaker", region).describe_pipeline(PipelineName=name)
    definition = json.loads(description["PipelineDefinition"])
    steps = {s.name: s for s in iter_steps(definition.get("Steps")) if s.loop is None}
    if step not in steps:
        message = f"--from {step}: pipeline {name} has no such step outside of loops"
        raise RecipeError(f"{message}; {suggest_nearest(step, list(steps))}")
    runs, earlier_run = _explain_reruns(step, steps), Execution(source, region)
    reused_steps = _find_reused(step, runs, steps, earlier_run)
    declarations = index_parameters(definition)
    parameters = {
        n: value for n, value in earlier_run.read_parameters().items() if n in declarations
    }
    references = {r.name for n in reused_steps for r in iter_known_references(steps[n].document)}
    return RerunPlan(
        pipeline=name,
        source=source,
        runs=runs,
        reused_steps=reused_steps,
        unneeded_steps=tuple(n for n in steps if n not in runs and n not in reused_steps),
        parameters=parameters,
        fixed_parameters={k: value for k, value in parameters.items() if k in references},
    )


def start_rerun(
    rerun: RerunPlan, new_parameters: Mapping[str, str], region: str | None = None
) -> str:
    """Start the execution that ``rerun`` plans; return its ARN.

    It has the parameters of the source, updated by ``new_parameters``.

    Raises:
        ServiceError: AWS refused.
    """
    values = {**rerun.parameters, **new_parameters}
    with service_errors(f"starting pipeline {rerun.pipeline}"):
        return create_client("sagemaker", region).start_pipeline_execution(
            PipelineName=rerun.pipeline,
            PipelineParameters=[{"Name": k, "Value": v} for k, v in values.items()],
            SelectiveExecutionConfig=rerun.selective_execution_config,
        )["PipelineExecutionArn"]


def _explain_reruns(step: str, steps: Mapping[str, Step]) -> dict[str, str]:
    """Return a mapping of the names of a step and of all its dependents to why they run.

    It is in the definition's order.

    Raises:
        RecipeError: there are more steps than AWS can select.
    """
    dependents = {step}
    while (
        new := {n for n, other in steps.items() if dependents & set(other.waits_for)} - dependents
    ):
        dependents |= new
    if len(dependents) > MOST:
        raise RecipeError(
            f"--from {step}: {len(dependents)} steps would run; AWS accepts at most {MOST}"
        )
    reasons = {
        name: "depends on "
        f"{', '.join(n for n in dict.fromkeys(other.waits_for) if n in dependents)}"
        for name, other in steps.items()
        if name in dependents
    }
    return reasons | {step: "named by --from"}


def _find_reused(
    step: str, runs: Iterable[str], steps: Mapping[str, Step], execution: Execution
) -> dict[str, str]:
    """Return a mapping of the names of all steps that the steps in ``runs`` need, directly or
    indirectly, to the reason.

    Raises:
        RecipeError: one of them did not succeed in ``execution``, or the execution has not ended.
    """
    status = execution.describe()["PipelineExecutionStatus"]
    if status not in END_STATUSES:
        message = f"--execution {execution.arn}: is {status}; wait until it has ended"
        raise RecipeError(f"{message} (trainyard watch)")
    statuses = {run_step.name: run_step.status for run_step in execution.list_steps()}
    reasons: dict[str, str] = {}
    todo = list(runs)
    while todo:
        name = todo.pop(0)
        for other in steps[name].waits_for:
            if other in reasons or other in runs or other not in steps:
                continue
            reasons[other] = f"Succeeded there; {name} needs it"
            if statuses.get(other) != "Succeeded":
                raise RecipeError(
                    f"--from {step}: {name} needs {other}, which is "
                    f"{statuses.get(other, 'not run')} in {execution.arn}; start --from {other}, "
                    "or name another execution"
                )
            todo.append(other)
    return {name: reasons[name] for name in steps if name in reasons}
