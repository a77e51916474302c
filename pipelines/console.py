"""Serve the console with panels for our executions; approvals and starts follow our rules.

python -m pipelines.console [--port P] [--region R] [--write]
"""

import json
from collections.abc import Mapping
from typing import Any

from pipelines.approve import approve
from pipelines.registry.champion import (
    NOBODY,
    get_package_group,
    list_approved,
    open_evidence,
    read_compared_champion,
)
from pipelines.registry.package_evidence import Absent
from pipelines.registry.run_overrides import list_overrides
from pipelines.run_report.run_panels import PANELS, read_outcome
from pipelines.start import start
from trainyard.aws_clients import create_client
from trainyard.commands import console
from trainyard.common.errors import GateError
from trainyard.console.app_hooks import Application, Description, Owner
from trainyard.language.expressions import format_parameter_value, index_parameters
from trainyard.terminal import extend_verb, run

# Approvals go through ``pipelines.approve``, with all its checks. Starts go through
# ``pipelines.start``: it passes the champion to the execution, takes the next number in the ledger
# of looks at the test split, and checks the budget.


def _is_our_package(package: Description) -> bool:
    """Return whether the package is ours: only ours name a provenance record."""
    return "provenance_uri" in (package.get("CustomerMetadataProperties") or {})


def _describe_approval(package: Description) -> list[str]:
    """Return the lines shown before an approval; overrides, which need a comment, are named."""
    evidence = open_evidence(package["ModelPackageArn"])
    sagemaker = create_client("sagemaker", evidence.region)
    approved_packages = list_approved(sagemaker, get_package_group(package))
    try:
        verdict_champion = read_compared_champion(evidence)
        champion = approved_packages[0] if approved_packages else None
        override_lines = list_overrides(evidence, champion)
    except (Absent, KeyError) as error:
        raise GateError(f"{evidence.arn}: cannot be approved: {error}") from None
    lines = [
        "This runs pipelines.approve: every byte of the artifact and of the evidence is first "
        "hashed and compared with the record, which takes a while, and the look at the test split "
        "is counted again. A package that does not match its record is not approved.",
        "Its verdict rests on a comparison with "
        f"{'no champion' if verdict_champion in NOBODY else verdict_champion}.",
        "Then UpdateModelPackage is called, with your comment and the results of the checks.",
    ]
    lines += [f"Differs from its recipe: {override}." for override in override_lines]
    return [*lines, "Because of that a comment is needed."] if override_lines else lines


def _approve_package(package: Description, form_values: Mapping[str, str]) -> Mapping[str, Any]:
    """Approve the package by ``pipelines.approve``, with the form's comment as the reason."""
    try:
        approve(package["ModelPackageArn"], reason=form_values.get("comment", "").strip() or None)
    except (Absent, KeyError) as error:
        raise GateError(f"{package['ModelPackageArn']}: not approved: {error}") from None
    return {}


def _is_our_pipeline(pipeline: Description) -> bool:
    """Return whether the pipeline is ours: only ours have a parameter for the champion."""
    return "ChampionArn" in index_parameters(json.loads(pipeline.get("PipelineDefinition") or "{}"))


def _describe_start(pipeline: Description) -> list[str]:
    """Return the lines shown before a start."""
    return [
        "This runs pipelines.start: it tells the run which model is the champion now, counts "
        "one more comparison on this test split, and refuses a run beyond the "
        "recipe's budget. Name and description are not passed on."
    ]


def _start_pipeline(pipeline: Description, form_values: Mapping[str, str]) -> Mapping[str, Any]:
    """Start the pipeline with the parameters of ``form_values`` that differ from their defaults.

    The form contains every parameter; ``pipelines.start`` sets the unchanged ones.
    """
    declared_parameters = index_parameters(json.loads(pipeline["PipelineDefinition"]))
    defaults = {
        name: format_parameter_value(entry["DefaultValue"])
        for name, entry in declared_parameters.items()
        if "DefaultValue" in entry
    }
    changed_parameters = {
        name: value for name, value in form_values.items() if defaults.get(name) != value
    }
    region = pipeline["PipelineArn"].split(":")[3]
    arn = start(pipeline["PipelineName"], changed_parameters, region=region)
    return {"PipelineExecutionArn": arn}


OWNERS = (
    Owner(action="approve", owns=_is_our_package, says=_describe_approval, do=_approve_package),
    Owner(action="start", owns=_is_our_pipeline, says=_describe_start, do=_start_pipeline),
)
"""Actions that ``python -m pipelines.console`` adds to the console."""

APPLICATION = Application(owners=OWNERS, panels=PANELS, judge=read_outcome)
main = extend_verb(console.main, lambda values: {"application": APPLICATION})


if __name__ == "__main__":
    run(main)
