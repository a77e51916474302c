"""Stop a run."""

from collections.abc import Mapping

from flask import url_for

from trainyard.console.account import Account
from trainyard.console.actions.action import ONCE, Call, Proposal, Table, action
from trainyard.language.statuses import ENDED


@action("stop")
def stop(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """StopPipelineExecution."""
    pipeline, execution = about["pipeline"], about["execution"]
    found = account.snapshot(pipeline, execution)
    arn = account.arn(pipeline, execution)
    running = [step for step in found.steps if step.status not in ENDED]
    waits = [step.title for step in running if "Callback" in step.metadata]
    does = [
        "Steps that run are stopped, and no other begins. What is done stays, with its outputs; "
        "a retry of the run goes on from there."
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
