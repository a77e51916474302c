"""Start a pipeline, with its parameters in a form; retry or stop an execution."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from flask import url_for

from trainyard.common.errors import TrainyardError
from trainyard.console.account_cache import Account
from trainyard.console.actions.action import (
    ONCE,
    Call,
    Field,
    Proposal,
    Table,
    build_steps_table,
    register_action,
)
from trainyard.console.app_hooks import find_owner
from trainyard.language.definition_document import END_STATUSES
from trainyard.language.expressions import (
    DEFAULT_TYPE,
    format_parameter_value,
    index_parameters,
    parse_parameter_value,
)

PREFIX = "p."  # prefix of a parameter's name in the form, which also has other fields


@register_action("start")
def propose_start(account: Account, about: Mapping[str, str], form: Mapping[str, str]) -> Proposal:
    """Propose StartPipelineExecution with the parameters that differ from their defaults."""
    pipeline = about["pipeline"]
    pipeline_description = account.call_sagemaker("describe_pipeline", PipelineName=pipeline)
    body = str(pipeline_description.get("PipelineDefinition", ""))
    document = json.loads(body or "{}")
    fields = make_parameter_fields(document, form)
    wrong = find_wrong_values(document, fields)
    parameters = {} if wrong else find_changed_values(document, fields)
    name_fields = [
        Field(name="name", label="Name of the run", value=form.get("name", ""), is_shown=True,
              hint="Optional; letters, digits and hyphens."),
        Field(name="description", label="Description", kind="text",
              value=form.get("description", ""), is_shown=True, hint="Optional."),
    ]  # fmt: skip
    does = [f"A new run of {pipeline} begins."]
    if wrong and not form:
        labels = ", ".join(field.label for field in fields if field.name in wrong)
        does.append(f"Give a value for {labels} to see which steps would run, and their cost.")
    name, description = (field.value.strip() for field in name_fields)
    words = {"PipelineExecutionDisplayName": name, "PipelineExecutionDescription": description}

    def find_run_page(answer: Mapping[str, Any]) -> str:
        """Return the execution's page, or the list of executions if an application started it."""
        arn = answer.get("PipelineExecutionArn")
        if not arn:
            return url_for("runs.show_runs")
        return url_for("run.show_run", pipeline=pipeline, execution=arn.rpartition("/")[2])

    parameter_list = [{"Name": name, "Value": value} for name, value in parameters.items()]
    own_action, refusal = None, ""
    if action_owner := find_owner("start", pipeline_description):
        own_action = lambda: action_owner.do(pipeline_description, collect_values(fields))  # noqa: E731
        try:
            does += action_owner.says(pipeline_description)
        except TrainyardError as error:
            refusal = str(error)
    return Proposal(
        title=f"Start {pipeline}",
        button="Start",
        does=does,
        state={
            "pipeline's last change": str(pipeline_description.get("LastModifiedTime", "")),
            "definition (SHA-256)": hashlib.sha256(body.encode()).hexdigest(),
            "pipeline's status": str(pipeline_description.get("PipelineStatus", "")),
        },
        calls=[
            Call(
                operation="StartPipelineExecution",
                arguments={
                    "PipelineName": pipeline,
                    **({"PipelineParameters": parameter_list} if parameter_list else {}),
                    **{member: text for member, text in words.items() if text},
                    "ClientRequestToken": ONCE,
                },
                resources=(pipeline_description["PipelineArn"],),
            )
        ],
        back=url_for("runs.show_runs"),
        then=find_run_page,
        fields=[*fields, *name_fields],
        wrong=wrong,
        tables=[] if wrong else build_steps_table(account, pipeline_description, parameters),
        impossible=refusal,
        own=own_action,
    )


def make_parameter_fields(document: Mapping[str, Any], form: Mapping[str, str]) -> list[Field]:
    """Return a form field for each parameter, with the typed value or else the default."""
    return [
        _make_field(name, entry, form.get(PREFIX + name))
        for name, entry in index_parameters(document).items()
    ]


def _make_field(name: str, entry: Mapping[str, Any], value: str | None) -> Field:
    """Return a parameter's form field; ``value`` is the typed text, or None for the default."""
    kind, default = entry.get("Type", DEFAULT_TYPE), entry.get("DefaultValue")
    default_text = "" if default is None else format_parameter_value(default)
    choices = entry.get("EnumValues") or (["true", "false"] if kind == "Boolean" else ())
    hint = f"{kind}, default {default_text}" if default is not None else f"{kind}, required"
    return Field(
        name=PREFIX + name,
        label=name,
        value=default_text if value is None else value,
        kind="choice" if choices else "line",
        choices=[
            (format_parameter_value(choice), format_parameter_value(choice)) for choice in choices
        ],
        hint=hint if len(hint) < 80 else kind,
        is_required=default is None,
        is_shown=True,
    )


def find_wrong_values(document: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, str]:
    """Return a mapping of each field with an invalid text to the reason."""
    errors = {}
    for field in fields:
        entry = index_parameters(document)[field.name.removeprefix(PREFIX)]
        try:
            parse_parameter_value(field.value, entry.get("Type", DEFAULT_TYPE))
        except ValueError as error:
            errors[field.name] = f"{error}."
        if field.is_required and not field.value:
            errors[field.name] = "It has no default: give a value."
    return errors


def find_changed_values(document: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, str]:
    """Return a mapping of each parameter that differs from its default to its text."""
    declarations = index_parameters(document)
    return {
        name: text
        for name, text in collect_values(fields).items()
        if (default := declarations[name].get("DefaultValue")) is None
        or parse_parameter_value(text, declarations[name].get("Type", DEFAULT_TYPE)) != default
    }


def collect_values(fields: Sequence[Field]) -> dict[str, str]:
    """Return a mapping of each parameter to the text in its field."""
    return {field.name.removeprefix(PREFIX): field.value for field in fields}


def _propose_for_run(
    account: Account, verb: str, about: Mapping[str, str], **more: Any
) -> Proposal:
    """Return the proposal to ``Retry`` or ``Stop`` the execution that the address names."""
    pipeline, execution = about["pipeline"], about["execution"]
    arn = account.find_execution_arn(pipeline, execution)
    call = Call(
        operation=f"{verb}PipelineExecution",
        arguments={"PipelineExecutionArn": arn, "ClientRequestToken": ONCE},
        resources=(arn,),
    )
    back = url_for("run.show_run", pipeline=pipeline, execution=execution)
    title = f"{verb} {pipeline} {execution}"
    return Proposal(title=title, button=verb, calls=[call], back=back, **more)


TABLE_TITLE, HEAD = "What happens to each step", ("step", "it would", "why")


@register_action("retry")
def propose_retry(account: Account, about: Mapping[str, str], form: Mapping[str, str]) -> Proposal:
    """Propose RetryPipelineExecution."""
    snapshot = account.read_snapshot(about["pipeline"], about["execution"])
    succeeded_steps = [s for s in snapshot.steps if s.status == "Succeeded"]
    rows = [(s.title, "stay as it is", "Succeeded") for s in succeeded_steps]
    rows += [(s.title, "run again", s.status) for s in snapshot.steps if s not in succeeded_steps]
    return _propose_for_run(
        account,
        "Retry",
        about,
        does=[
            "The same run continues, with its own definition and parameters: successful steps "
            "stay, failed or stopped steps run again, and then the steps that wait for them."
        ],
        state={"status": snapshot.status, "steps": str(len(snapshot.steps))},
        tables=[Table(title=TABLE_TITLE, head=HEAD, rows=rows)],
        impossible=""
        if snapshot.status in ("Failed", "Stopped")
        else f"It is {snapshot.status}; only a Failed or Stopped run can be retried.",
    )


@register_action("stop")
def propose_stop(account: Account, about: Mapping[str, str], form: Mapping[str, str]) -> Proposal:
    """Propose StopPipelineExecution."""
    snapshot = account.read_snapshot(about["pipeline"], about["execution"])
    running = [step for step in snapshot.steps if step.status not in END_STATUSES]
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
    return _propose_for_run(
        account,
        "Stop",
        about,
        does=does,
        state={"status": snapshot.status},
        tables=[Table(title="Steps that run now", head=["step", "status"], rows=rows)]
        if rows
        else [],
        impossible=f"It is {snapshot.status}: there is nothing to stop."
        if snapshot.is_ended or snapshot.status == "Stopping"
        else "",
    )
