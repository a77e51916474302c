"""Show what an update of a pipeline would change, and what its next run would cost.

trainyard plan definition.json --pipeline NAME   # against what is deployed
trainyard plan --pipeline NAME                   # the next run of what is deployed
trainyard plan definition.json                   # a pipeline that is not deployed; calls no AWS API

Changes nothing. Exit status 0: no change; 2: changes; 1: an error.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from trainyard.aws_clients import create_client, service_errors
from trainyard.definition_source import (
    DefinitionArgument,
    PipelineOption,
    RegionOption,
    read_definition_text,
)
from trainyard.local_state import serve_local_state
from trainyard.plan.cache_prediction import History
from trainyard.plan.deployed_pipeline import State, describe_deployed_pipeline
from trainyard.plan.pipeline_plan import Plan, create_plan, find_overwritten
from trainyard.plan.plan_display import print_plan
from trainyard.plan.prices import load_prices
from trainyard.terminal import Need, needs
from trainyard.validate import refuse_errors
from trainyard.validate.all_checks import JsonOption

CHANGES = 2
"""Exit status if something would change."""


@dataclass(frozen=True, slots=True)
class PlanSubject:
    """Functions that make a plan, convert it to JSON, and check it after it was shown."""

    make: Callable[[], Plan]
    as_json: Callable[[Plan], Mapping[str, Any]] = Plan.as_json
    conclude: Callable[[Plan], None] = lambda plan: None
    """Called with the plan after it was shown. Raises TrainyardError if it must not be applied."""


@needs(Need(("definition", "pipeline"), exclusive=False))
@serve_local_state()
def main(
    definition: DefinitionArgument = None,
    pipeline: PipelineOption = None,
    region: RegionOption = None,
    as_json: JsonOption = False,
    *,
    subject: PlanSubject | None = None,
) -> None:
    """Show what updating a pipeline would change, and what its next run would do and cost."""
    subject = subject or PlanSubject(lambda: _make_plan(definition, pipeline, region))
    plan = subject.make()
    if as_json:
        print(json.dumps(subject.as_json(plan), indent=1))
    else:
        print_plan(plan)
    subject.conclude(plan)
    raise typer.Exit(CHANGES if plan.current is None or plan.diff else 0)


def _make_plan(definition: Path | None, pipeline: str | None, region: str | None) -> Plan:
    """Return the plan of a pipeline: with its deployed definition, or with the one in the file."""
    body = read_definition_text(definition, None if definition else pipeline, region)
    name = pipeline or (definition.stem if definition else "")
    refuse_errors(body, str(definition or pipeline))
    with service_errors(f"planning pipeline {name}"):
        sagemaker, s3 = create_client("sagemaker", region), create_client("s3", region)
        current = describe_deployed_pipeline(sagemaker, name) if pipeline is not None else None
        target = replace(current.state, definition=body) if current else State(name, body)
        history = History(sagemaker, name if current else None, s3=s3)
        plan = create_plan(target, current, history, load_prices(sagemaker.meta.region_name))
        overwrites = find_overwritten(s3, target.document, plan.outcomes)
        return replace(plan, overwritten=tuple(overwrites))
