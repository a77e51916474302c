"""Proposals of actions: the effects, the state that they depend on, and how they are executed."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from botocore import xform_name
from flask import current_app
from itsdangerous import BadSignature, URLSafeTimedSerializer
from werkzeug.exceptions import Forbidden

from trainyard.aws_clients import service_errors
from trainyard.console.account_cache import Account
from trainyard.permissions.statements import Statement, build_policy
from trainyard.plan.cache_prediction import History, predict_outcomes
from trainyard.plan.pipeline_plan import apply_parameters
from trainyard.plan.plan_display import format_cost, format_times, format_usd
from trainyard.plan.prices import load_prices
from trainyard.plan.run_cost import compute_total, estimate_costs


def make_placeholder(field: str) -> str:
    """Return a placeholder, in a call's arguments, for the text typed into that field."""
    return f"‹{field}›"


ONCE = "‹this form's own id›"
"""Placeholder, in a call's arguments, for a token that makes a double click act only once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of SageMaker's API, exactly as it is sent."""

    operation: str  # name as in the API reference: ``StopPipelineExecution``
    arguments: Mapping[str, Any]
    resources: tuple[str, ...]  # ARNs for which the caller needs a permission

    def execute(self, account: Account, once: str) -> dict[str, Any]:
        """Make the call; return its response."""
        arguments = {k: once if value == ONCE else value for k, value in self.arguments.items()}
        with service_errors("this was not done"):
            answer: dict[str, Any] = getattr(account.sagemaker, xform_name(self.operation))(
                **arguments
            )
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An input of the form."""

    name: str
    label: str
    value: str = ""
    kind: Literal["line", "text", "choice"] = "line"
    choices: Sequence[tuple[str, str]] = ()  # (value, text) of each choice
    hint: str = ""
    is_required: bool = False
    is_shown: bool = False
    """True if the value affects the proposal. After a change, the proposal is shown again first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table on the page."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An action's effects, for the current state and the typed values."""

    title: str
    button: str
    does: Sequence[str]  # sentences that describe the effects
    state: Mapping[str, str]
    """State that it depends on, by name. The action is not executed if a value has changed."""

    calls: Sequence[Call] = ()
    back: str  # address of the page of the resource that the action is about
    then: Callable[[Mapping[str, Any]], str] | None = None
    """Function that returns the next page from the last call's response. Default: ``back``."""

    fields: Sequence[Field] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)  # field to why its value is refused
    tables: Sequence[Table] = ()
    impossible: str = (
        ""  # why it cannot be done now; the page then shows this instead of the button
    )
    own: Callable[[], Mapping[str, Any]] | None = None
    """An application's function to call instead of ``calls``. Raises TrainyardError to refuse."""

    @property
    def relevant_values(self) -> dict[str, str]:
        """Return the values of the fields that affect the proposal."""
        return {field.name: field.value for field in self.fields if field.is_shown}

    def execute(self, account: Account, once: str) -> str:
        """Execute the action; return the address of the next page.

        Raises:
            TrainyardError: AWS or the application refused.
        """
        answer: Mapping[str, Any] = {}
        if self.own is not None:
            answer = self.own()
        else:
            for call in self.calls:
                answer = call.execute(account, once)
        # Drop the cache, because the next page must show the change.
        account.clear_cache()
        return self.then(answer) if self.then else self.back


Propose = Callable[[Account, Mapping[str, str], Mapping[str, str]], Proposal]
"""Function from (account, variables of the address, typed values (empty at first)) to a proposal.

It raises ServiceError if a resource is missing, and KeyError if a variable of the address is."""

_ACTIONS: dict[str, Propose] = {}


def register_action(name: str) -> Callable[[Propose], Propose]:
    """Register a function that proposes the action with that name, which is part of the address."""

    def register(propose: Propose) -> Propose:
        _ACTIONS[name] = propose
        return propose

    return register


def list_actions() -> Mapping[str, Propose]:
    """Return all registered actions, by name."""
    return _ACTIONS


LASTS = 12 * 3600  # seconds after which a form is refused, because its contents are outdated


def sign_token(action: str, about: Mapping[str, str], **content: Any) -> str:
    """Return the signed token of a form, which contains what the form shows.

    ``content`` is ``state``, ``typed`` and ``caller``. The token also has an id ``once``, which is
    the same for two clicks on the same form.
    """
    return _make_signer().dumps({"action": action, "about": about, "once": str(uuid4()), **content})


def read_token(token: str, action: str, about: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the content of a form's token: what the form showed.

    Raises:
        Forbidden: the form is not from this console, is too old, or is for another action.
    """
    try:
        content: Mapping[str, Any] = _make_signer().loads(token, max_age=LASTS)
    except BadSignature:
        raise Forbidden("This form is not from this console, or has expired.") from None
    if (content["action"], content["about"]) != (action, dict(about)):
        raise Forbidden("This form is for another action.")
    return content


def find_state_changes(
    old_state: Mapping[str, str], new_state: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return (name, old value, new value) of each value that has changed."""
    return [
        (name, old_state.get(name, ""), new_state.get(name, ""))
        for name in dict.fromkeys((*old_state, *new_state))
        if old_state.get(name) != new_state.get(name)
    ]


def _make_signer() -> URLSafeTimedSerializer:
    assert current_app.secret_key  # web_server.create_console_app sets it
    return URLSafeTimedSerializer(current_app.secret_key, salt="actions")


_DENIAL = re.compile(r"AccessDenied|UnauthorizedOperation|is not authorized to perform")
_DENIED_ACTION = re.compile(
    r"is not authorized to perform: (?P<action>[\w-]+:\w+)"
    r"(?: on resource: \"?(?P<resource>arn:[^\s\"]+|\*))?"
)


def build_policy_for_denial(message: str, calls: Sequence[Call]) -> dict[str, Any] | None:
    """Return the policy that would allow what AWS has denied.

    It has the statement that AWS's message asks for, or else those that the calls need. Return None
    if the refusal is not about a missing permission.
    """
    if not _DENIAL.search(message):
        return None
    if match := _DENIED_ACTION.search(message):
        needs = {match["action"]: (match["resource"] or "*",)}
    else:
        needs = {f"sagemaker:{call.operation}": call.resources for call in calls}
    return build_policy(
        [
            Statement(
                sid=f"Console{action.partition(':')[2]}", actions=(action,), resources=resources
            )
            for action, resources in needs.items()
        ]
    )


LEAST_RUNS = 2  # minimum number of earlier executions for expected times; predict may read more
HEAD = ("step", "it would", "why", "expected time", "expected cost", "at most")


def build_steps_table(
    account: Account, description: Mapping[str, Any], parameters: Mapping[str, str]
) -> list[Table]:
    """Return a table of the steps of an execution with these parameters, with time and cost.

    ``description``: response of DescribePipeline.
    """
    name = description["PipelineName"]
    document = apply_parameters(json.loads(description["PipelineDefinition"]), parameters)
    with service_errors(f"predicting a run of {name}"):
        history = History(account.sagemaker, name, s3=account.s3)
        # Expected times need executions, and predict reads none for steps whose cache is off.
        while len(history.runs) < LEAST_RUNS and history.read_more():
            pass
        outcomes = predict_outcomes(document, name, history, datetime.now(UTC))
        costs = estimate_costs(
            document, outcomes, history, load_prices(account.sagemaker.meta.region_name)
        )
    rows: list[tuple[str, ...]] = []
    for outcome, cost in zip(outcomes, costs, strict=True):
        answer = "be answered from the cache" if outcome.answer == "cached" else "run"
        reason = "; ".join(filter(None, [outcome.why, outcome.when]))
        expected = (
            format_times(cost.expected_seconds),
            format_cost(cost.usd_expected, cost.estimated),
        )
        limit = format_usd(cost.usd_limit, cost.estimated)
        rows.append((outcome.step, answer, reason, *expected, limit))
    total_cost, some = compute_total(document, costs), any(cost.estimated for cost in costs)
    sums = (
        format_times(total_cost.expected),
        format_cost(total_cost.usd_expected, some),
        format_usd(total_cost.usd_limit, some),
    )
    rows.append(("together", "", "if every branch of a condition ran", *sums))
    return [Table(title="Steps that would run, and possible cost", head=HEAD, rows=rows)]
