"""Start a pipeline, with its parameters in a form; retry or stop a run."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from flask import url_for

from trainyard.common.errors import TrainyardError
from trainyard.console.account_cache import Account
from trainyard.console.actions.action import ONCE, Call, Field, Proposal, Table, action, foreseen
from trainyard.console.app_hooks import owner
from trainyard.language.parameters import UNTYPED, as_given, declared, parse
from trainyard.language.statuses import ENDED

PREFIX = "p."  # prefix of a parameter's name in the form, which also has other fields


@action("start")
def start(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """Propose StartPipelineExecution with the parameters that differ from their defaults."""
    pipeline = about["pipeline"]
    there = account.ask("describe_pipeline", PipelineName=pipeline)
    body = str(there.get("PipelineDefinition", ""))
    document = json.loads(body or "{}")
    like = about.get("like")
    earlier = account.execution(pipeline, like).parameters() if like else {}
    fields = parameter_fields(document, typed, earlier)
    wrong = wrong_values(document, fields)
    given = {} if wrong else changed(document, fields)
    named = [
        Field(name="name", label="Name of the run", value=typed.get("name", ""), shown=True,
              hint="Optional; letters, digits and hyphens."),
        Field(name="description", label="Description", kind="text",
              value=typed.get("description", ""), shown=True, hint="Optional."),
    ]  # fmt: skip
    does = [f"A new run of {pipeline} begins."]
    if wrong and not typed:
        needed = ", ".join(one.label for one in fields if one.name in wrong)
        does.append(f"Give a value for {needed} to see which steps would run, and their cost.")
    name, description = (one.value.strip() for one in named)
    words = {"PipelineExecutionDisplayName": name, "PipelineExecutionDescription": description}

    def begun(answer: Mapping[str, Any]) -> str:
        """Return the page of the run; the list of runs if an application started it."""
        arn = answer.get("PipelineExecutionArn")
        if not arn:
            return url_for("runs.runs")
        return url_for("run.run", pipeline=pipeline, execution=arn.rpartition("/")[2])

    listed = [{"Name": name, "Value": value} for name, value in given.items()]
    own, refused = None, ""
    if mine := owner("start", there):
        own = lambda: mine.do(there, values_of(fields))  # noqa: E731
        try:
            does += mine.says(there)
        except TrainyardError as error:
            refused = str(error)
    return Proposal(
        title=f"Start {pipeline}",
        button="Start",
        does=does,
        state={
            "pipeline's last change": str(there.get("LastModifiedTime", "")),
            "definition (SHA-256)": hashlib.sha256(body.encode()).hexdigest(),
            "pipeline's status": str(there.get("PipelineStatus", "")),
        },
        calls=[
            Call(
                operation="StartPipelineExecution",
                arguments={
                    "PipelineName": pipeline,
                    **({"PipelineParameters": listed} if listed else {}),
                    **{member: text for member, text in words.items() if text},
                    "ClientRequestToken": ONCE,
                },
                resources=(there["PipelineArn"],),
            )
        ],
        back=url_for("runs.runs"),
        then=begun,
        fields=[*fields, *named],
        wrong=wrong,
        tables=[] if wrong else foreseen(account, there, given),
        impossible=refused,
        own=own,
    )


def parameter_fields(
    document: Mapping[str, Any], typed: Mapping[str, str], earlier: Mapping[str, str]
) -> list[Field]:
    """Return a field per parameter: the typed value, else an earlier run's, else the default."""
    return [
        _field(name, entry, typed.get(PREFIX + name, earlier.get(name)))
        for name, entry in declared(document).items()
    ]


def _field(name: str, entry: Mapping[str, Any], value: str | None) -> Field:
    kind, default = entry.get("Type", UNTYPED), entry.get("DefaultValue")
    usual = "" if default is None else as_given(default)
    choices = entry.get("EnumValues") or (["true", "false"] if kind == "Boolean" else ())
    said = f"{kind}, default {usual}" if default is not None else f"{kind}, required"
    return Field(
        name=PREFIX + name,
        label=name,
        value=usual if value is None else value,
        kind="choice" if choices else "line",
        choices=[(as_given(one), as_given(one)) for one in choices],
        hint=said if len(said) < 80 else kind,
        required=default is None,
        shown=True,
    )


def wrong_values(document: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, str]:
    """Return field → why its text is not a value of the parameter."""
    found = {}
    for one in fields:
        entry = declared(document)[one.name.removeprefix(PREFIX)]
        try:
            parse(one.value, entry.get("Type", UNTYPED))
        except ValueError as error:
            found[one.name] = f"{error}."
        if one.required and not one.value:
            found[one.name] = "It has no default: give a value."
    return found


def changed(document: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, str]:
    """Return parameter → text, for those that differ from their defaults."""
    known = declared(document)
    return {
        name: text
        for name, text in values_of(fields).items()
        if (default := known[name].get("DefaultValue")) is None
        or parse(text, known[name].get("Type", UNTYPED)) != default
    }


def values_of(fields: Sequence[Field]) -> dict[str, str]:
    """Return parameter → text in its field."""
    return {one.name.removeprefix(PREFIX): one.value for one in fields}


def _of_run(account: Account, verb: str, about: Mapping[str, str], **more: Any) -> Proposal:
    """Return the proposal to ``Retry`` or ``Stop`` the run in the address."""
    pipeline, execution = about["pipeline"], about["execution"]
    arn = account.arn(pipeline, execution)
    call = Call(
        operation=f"{verb}PipelineExecution",
        arguments={"PipelineExecutionArn": arn, "ClientRequestToken": ONCE},
        resources=(arn,),
    )
    back = url_for("run.run", pipeline=pipeline, execution=execution)
    title = f"{verb} {pipeline} {execution}"
    return Proposal(title=title, button=verb, calls=[call], back=back, **more)


EACH, HEAD = "What happens to each step", ("step", "it would", "why")


@action("retry")
def retry(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """Propose RetryPipelineExecution."""
    found = account.snapshot(about["pipeline"], about["execution"])
    done = [s for s in found.steps if s.status == "Succeeded"]
    rows = [(s.title, "stay as it is", "Succeeded") for s in done]
    rows += [(s.title, "run again", s.status) for s in found.steps if s not in done]
    return _of_run(
        account,
        "Retry",
        about,
        does=[
            "The same run continues, with its own definition and parameters: successful steps "
            "stay, failed or stopped steps run again, and then the steps that wait for them."
        ],
        state={"status": found.status, "steps": str(len(found.steps))},
        tables=[Table(title=EACH, head=HEAD, rows=rows)],
        impossible=""
        if found.status in ("Failed", "Stopped")
        else f"It is {found.status}; only a Failed or Stopped run can be retried.",
    )


@action("stop")
def stop(account: Account, about: Mapping[str, str], typed: Mapping[str, str]) -> Proposal:
    """Propose StopPipelineExecution."""
    found = account.snapshot(about["pipeline"], about["execution"])
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
    rows = [(step.title, step.status) for step in running]
    return _of_run(
        account,
        "Stop",
        about,
        does=does,
        state={"status": found.status},
        tables=[Table(title="Steps that run now", head=["step", "status"], rows=rows)]
        if rows
        else [],
        impossible=f"It is {found.status}: there is nothing to stop."
        if found.is_ended or found.status == "Stopping"
        else "",
    )
