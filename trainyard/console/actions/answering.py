"""Answer a Callback step that waits: it succeeded, or it failed."""

import json
from collections.abc import Mapping
from typing import Any

from flask import url_for

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.console.actions.action import ONCE, Call, Field, Proposal, action, told_by
from trainyard.language.parameters import parse
from trainyard.language.steps import steps_of
from trainyard.runs.callbacks import RUNS
from trainyard.runs.execution import Step
from trainyard.service import service_errors

PREFIX = "o."
LONGEST_REASON = 256
"""Characters of a FailureReason (botocore's model)."""


@action("succeed")
def succeed(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """SendPipelineExecutionStepSuccess."""
    step, made = _waiting(account, about)
    declared = _outputs(account, about)
    fields = [
        Field(name=PREFIX + name, label=name, value=typed.get(PREFIX + name, ""),
              hint=f"{kind}, an output of the step", required=True)
        for name, kind in declared.items()
    ]  # fmt: skip
    wrong = {one.name: said for one in fields if (said := _wrong(one, declared))}
    given = [
        {"Name": one.label, "Value": one.value if typed else told_by(one.label)} for one in fields
    ]
    return _proposal(
        account, about, step, made,
        title=f"Answer {step.title}: it succeeded",
        button="Succeeded",
        does=[f"{step.title} succeeds with these outputs, and what waits for it begins."],
        operation="SendPipelineExecutionStepSuccess",
        arguments={"OutputParameters": given} if given else {},
        fields=fields,
        wrong=wrong if typed else {},
    )  # fmt: skip


@action("fail")
def fail(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """SendPipelineExecutionStepFailure."""
    step, made = _waiting(account, about)
    reason = Field(name="reason", label="Reason", value=typed.get("reason", ""), required=True,
                   hint="It stands as the step's reason of failure.")  # fmt: skip
    said = "Say why." if not reason.value.strip() else ""
    if len(reason.value) > LONGEST_REASON:
        said = f"It has {len(reason.value)} characters; AWS takes {LONGEST_REASON}."
    return _proposal(
        account, about, step, made,
        title=f"Answer {step.title}: it failed",
        button="Failed",
        does=[f"{step.title} fails with this reason; the run goes on as it does after a failure."],
        operation="SendPipelineExecutionStepFailure",
        arguments={"FailureReason": reason.value if typed else told_by("Reason")},
        fields=[reason],
        wrong={"reason": said} if said and typed else {},
    )  # fmt: skip


def _proposal(
    account: Account,
    about: Mapping[str, str],
    step: Step,
    made: Mapping[str, Any],
    *,
    operation: str,
    arguments: Mapping[str, Any],
    **more: Any,
) -> Proposal:
    pipeline, execution = about["pipeline"], about["execution"]
    token = str(made.get("CallbackToken", ""))
    given = {"CallbackToken": token, **arguments, "ClientRequestToken": ONCE}
    waits = step.status in RUNS
    return Proposal(
        state={"status": step.status, "token": token},
        calls=[
            Call(
                operation=operation,
                arguments=given,
                resources=(account.arn(pipeline, execution),),
            )
        ],
        back=url_for("run.run", pipeline=pipeline, execution=execution),
        impossible="" if waits else f"It is {step.status}: nobody waits for an answer any more.",
        **more,
    )


def _waiting(account: Account, about: Mapping[str, str]) -> tuple[Step, Mapping[str, Any]]:
    step = account.step(about["pipeline"], about["execution"], about["step"])
    made = step.metadata.get("Callback")
    if made is None:
        raise ServiceError(f"step {step.name} waits for nobody's answer, or does not yet")
    return step, made


def _outputs(account: Account, about: Mapping[str, str]) -> dict[str, str]:
    """Output parameter → its type, by the definition that the run has."""
    arn = account.arn(about["pipeline"], about["execution"])
    with service_errors(f"reading the definition of {arn}"):
        answer = account.sagemaker.describe_pipeline_definition_for_execution(
            PipelineExecutionArn=arn
        )
    for step in steps_of(json.loads(answer.get("PipelineDefinition") or "{}").get("Steps")):
        if step.name == about["step"]:
            listed = step.document.get("OutputParameters") or ()
            return {one["OutputName"]: one.get("OutputType", "String") for one in listed}
    return {}


def _wrong(one: Field, declared: Mapping[str, str]) -> str:
    if not one.value:
        return "The step has this output: give its value."
    try:
        parse(one.value, declared[one.label])
    except ValueError as error:
        return f"{error}."
    return ""
