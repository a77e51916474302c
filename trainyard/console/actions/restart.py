"""Start again from a step of a run, retry a run, or stop one."""

from collections.abc import Mapping

from flask import url_for

from trainyard.common.errors import RecipeError, TrainyardError
from trainyard.console.account_cache import Account
from trainyard.console.actions.action import ONCE, Call, Proposal, Table, action, foreseen
from trainyard.console.actions.start_form import (
    as_arguments,
    changed,
    definition_of,
    page_of,
    parameter_fields,
    state_of,
    values_of,
    wrong_values,
)
from trainyard.console.app_hooks import owner
from trainyard.language.statuses import ENDED
from trainyard.runs.selective_rerun import plan

RETRIED = ("Failed", "Stopped")
EACH, HEAD = "What happens to each step", ("step", "it would", "why")


@action("again")
def again(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """Propose StartPipelineExecution with SelectiveExecutionConfig."""
    pipeline, execution, step = about["pipeline"], about["execution"], about["step"]
    source = account.arn(pipeline, execution)
    there, document = definition_of(account, pipeline)
    title = f"Start {pipeline} again from {step}"
    state = {**state_of(there), "status of the run": account.snapshot(pipeline, execution).status}
    back = url_for("run.run", pipeline=pipeline, execution=execution)
    try:
        found = plan(step, source, pipeline, account.region)
    except RecipeError as error:
        return Proposal(
            title=title, button="Start", does=(), state=state, impossible=str(error),
            back=back,
        )  # fmt: skip
    fields = parameter_fields(document, typed, found.parameters)
    wrong = wrong_values(document, fields)
    given = {} if wrong else changed(document, fields)
    held = [name for name, value in found.held.items() if given.get(name, value) != value]
    does = [f"A new run of {pipeline} begins with {step}; it reuses results of {execution}."]
    does += [f"{name}: steps that are reused had another value." for name in held]
    own = None
    if mine := owner("again", there):
        own = lambda: mine.do({**there, "Again": found}, values_of(fields))  # noqa: E731
        try:
            does += mine.says(there)
        except TrainyardError as error:
            wrong["again"] = str(error)
    rows = [(name, "be reused", why) for name, why in found.reused.items()]
    rows += [
        (name, "run", "from here" if name == step else why) for name, why in found.runs.items()
    ]
    rows += [(name, "be left out", "not needed") for name in found.left]
    return Proposal(
        title=title,
        button="Start",
        does=does,
        state=state,
        calls=[
            Call(
                operation="StartPipelineExecution",
                arguments={
                    "PipelineName": pipeline,
                    **as_arguments(given),
                    "SelectiveExecutionConfig": found.config,
                    "ClientRequestToken": ONCE,
                },
                resources=(there["PipelineArn"],),
            )
        ],
        back=back,
        then=lambda answer: page_of(pipeline, answer),
        fields=fields,
        wrong=wrong,
        tables=[
            Table(title=EACH, head=HEAD, rows=rows),
            *([] if wrong else foreseen(account, there, given, tuple(found.runs))),
        ],
        own=own,
    )


@action("retry")
def retry(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """Propose RetryPipelineExecution."""
    pipeline, execution = about["pipeline"], about["execution"]
    arn = account.arn(pipeline, execution)
    found = account.snapshot(pipeline, execution)
    done = [s for s in found.steps if s.status == "Succeeded"]
    rows = [(s.title, "stay as it is", "Succeeded") for s in done]
    rows += [(s.title, "run again", s.status) for s in found.steps if s not in done]
    return Proposal(
        title=f"Retry {pipeline} {execution}",
        button="Retry",
        does=[
            "The same run continues, with its own definition and parameters: successful steps "
            "stay, failed or stopped steps run again, and then the steps that wait for them."
        ],
        state={"status": found.status, "steps": str(len(found.steps))},
        calls=[
            Call(
                operation="RetryPipelineExecution",
                arguments={"PipelineExecutionArn": arn, "ClientRequestToken": ONCE},
                resources=(arn,),
            )
        ],
        back=url_for("run.run", pipeline=pipeline, execution=execution),
        tables=[Table(title=EACH, head=HEAD, rows=rows)],
        impossible=""
        if found.status in RETRIED
        else f"It is {found.status}; only a Failed or Stopped run can be retried.",
    )


@action("stop")
def stop(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """Propose StopPipelineExecution."""
    pipeline, execution = about["pipeline"], about["execution"]
    found = account.snapshot(pipeline, execution)
    arn = account.arn(pipeline, execution)
    running = [step for step in found.steps if step.status not in ENDED]
    waits = [step.title for step in running if "Callback" in step.metadata]
    does = [
        "Running steps are stopped, and no other begins. Finished steps stay, with their outputs; "
        "a retry of the run continues from there."
    ]
    if waits:
        does.append(
            f"{', '.join(waits)} waits for an answer: the run stays Stopping until it is answered."
        )
    return Proposal(
        title=f"Stop {pipeline} {execution}",
        button="Stop",
        does=does,
        state={"status": found.status},
        calls=[
            Call(
                operation="StopPipelineExecution",
                arguments={"PipelineExecutionArn": arn, "ClientRequestToken": ONCE},
                resources=(arn,),
            )
        ],
        back=url_for("run.run", pipeline=pipeline, execution=execution),
        tables=[
            Table(
                title="Steps that run now",
                head=["step", "status"],
                rows=[(step.title, step.status) for step in running],
            )
        ]
        if running
        else [],
        impossible=f"It is {found.status}: there is nothing to stop."
        if found.is_ended or found.status == "Stopping"
        else "",
    )
