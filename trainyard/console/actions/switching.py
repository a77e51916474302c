"""Let an endpoint serve another configuration, such as the one before: how a deployment is undone.

AWS does not tell which configuration an endpoint had before, so a person chooses among those that
there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flask import url_for

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.console.actions.action import Call, Field, Proposal, Table, action
from trainyard.console.registry import place_of
from trainyard.console.serving import config, endpoint_now, model, models_of, packages_of
from trainyard.console.wording import said_at
from trainyard.service import service_errors

NEWEST = 100
"""Configurations to choose from."""


@action("switch-endpoint")
def switch_endpoint(
    account: Account, about: Mapping[str, str], typed: Mapping[str, str]
) -> Proposal:
    """UpdateEndpoint."""
    name = about["endpoint"]
    now = endpoint_now(account, name)
    used = str(now.get("EndpointConfigName", ""))
    others = [one for one in _configs(account) if one["EndpointConfigName"] != used]
    chosen = typed.get("config", "")
    known = {one["EndpointConfigName"]: one for one in others}
    choices = [("", "choose one"), *((n, f"{n} ({one['CreationTime']:%Y-%m-%d %H:%M %Z})")
                                     for n, one in known.items())]  # fmt: skip
    wrong = {"config": "There is no such configuration."} if chosen not in ("", *known) else {}
    if typed and not chosen:
        wrong = {"config": "Choose one."}
    arns = [str(now.get("EndpointArn", name))]
    arns += [known[chosen]["EndpointConfigArn"]] if chosen in known else []
    status = str(now.get("EndpointStatus", "Unknown"))
    return Proposal(
        title=f"Switch endpoint {name} to another configuration",
        button="Switch",
        does=[
            "The endpoint starts the instances of the chosen configuration, sends requests to them "
            "when they are healthy, then ends the others. While that fails it goes on as it is.",
            "Weights and instance counts are then as the configuration has them.",
        ],
        state={"configuration": used, "status": status,
               "last change": said_at(now.get("LastModifiedTime"))},
        calls=[
            Call(
                operation="UpdateEndpoint",
                arguments={"EndpointName": name, "EndpointConfigName": chosen or "…"},
                resources=tuple(arns),
            )
        ],
        back=url_for("models.models"),
        fields=[
            Field(name="config", label="Configuration", value=chosen, kind="choice",
                  choices=choices, required=True, shown=True,
                  hint="AWS does not tell which one the endpoint had before.")
        ],
        wrong=wrong,
        tables=[_compared(account, used, chosen)],
        impossible="" if status == "InService" else
        f"It is {status}; only an endpoint that is InService can be updated.",
    )  # fmt: skip


def _configs(account: Account) -> list[dict[str, Any]]:
    """The newest configurations."""
    with service_errors("listing the endpoint configurations"):
        pages = account.sagemaker.get_paginator("list_endpoint_configs").paginate(
            SortBy="CreationTime",
            SortOrder="Descending",
            PaginationConfig={"MaxItems": NEWEST},
        )
        return [one for page in pages for one in page["EndpointConfigs"]]


def _compared(account: Account, used: str, chosen: str) -> Table:
    rows = [("now", *row) for row in _variants(account, used)]
    rows += [("then", *row) for row in _variants(account, chosen)] if chosen else []
    head = ("", "configuration", "variant", "instances", "model", "model package")
    return Table(title="What it serves", head=head, rows=rows)


def _variants(account: Account, name: str) -> list[Sequence[Any]]:
    try:
        found = config(account, name)
    except ServiceError as error:
        return [(name, "cannot be known", str(error), "", "")]
    return [
        (name, v.get("VariantName"), _instances(v), v.get("ModelName"), _package(account, v))
        for v in found.get("ProductionVariants") or ()
    ]


def _instances(variant: Mapping[str, Any]) -> str:
    if "ServerlessConfig" in variant:
        return "serverless"
    count, kind = variant.get("InitialInstanceCount", ""), variant.get("InstanceType", "")
    return f"{count} × {kind}" if kind else ""


def _package(account: Account, variant: Mapping[str, Any]) -> str:
    names = models_of({"ProductionVariants": [variant]})
    try:
        arns = [arn for name in names for arn in packages_of(model(account, name))]
    except ServiceError:
        return "cannot be known"
    return ", ".join(" version ".join(place_of(arn)) for arn in arns) or "of no package"
