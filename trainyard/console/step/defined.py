"""The definition that an execution ran, with its parameters' values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.console.account import Account
from trainyard.language.parameters import values
from trainyard.language.steps import Step, named
from trainyard.service import service_errors

UNCHANGING = 3_600.0
"""Seconds for which what cannot change is kept."""


@dataclass(frozen=True, slots=True)
class Defined:
    """What was asked of an execution."""

    document: Mapping[str, Any]
    parameters: Mapping[str, Any]
    """Name → value, in its type."""

    def step(self, name: str) -> Step | None:
        """The step of that name, or the one in a loop's body that ``<body>-<index>`` is of."""
        return named(self.document.get("Steps"), name)


def defined(here: Account, arn: str) -> Defined:
    """The definition and the parameters of the execution with that ARN.

    Raises:
        ServiceError: there is none, or AWS refused.
    """
    return here.lately(("step: defined", arn), lambda: _read(here, arn), UNCHANGING)


def _read(here: Account, arn: str) -> Defined:
    with service_errors(f"reading the definition of {arn}"):
        answer = here.sagemaker.describe_pipeline_definition_for_execution(PipelineExecutionArn=arn)
        pages = here.sagemaker.get_paginator("list_pipeline_parameters_for_execution")
        given = {
            each.get("Name", ""): each.get("Value", "")
            for page in pages.paginate(PipelineExecutionArn=arn)
            for each in page.get("PipelineParameters", [])
        }
    document = json.loads(answer.get("PipelineDefinition") or "{}")
    return Defined(document, values(document, given))
