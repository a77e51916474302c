"""Run the checks of a definition, in order; offline and without credentials."""

from collections.abc import Iterator
from dataclasses import replace

from trainyard.common.errors import DefinitionError
from trainyard.language.definition_document import Document
from trainyard.validate import (
    condition_checks,
    reference_checks,
    rules,
    step_dependencies,
    step_request_checks,
)
from trainyard.validate.botocore_shapes import service_shapes
from trainyard.validate.location import Finding
from trainyard.validate.outer_form import ROOT, read

MALFORMED_RULES = {
    "type",
    "expression-type",
    "number-in-string",
    "expression",
    "form",
    "parameter-type",
}
"""Rules after which a step's values have other types than its shapes say."""


def check(body: str) -> list[Finding]:
    """Return the findings in the definition ``body``: errors first, step by step.

    A definition with a wrong outer form is checked as far as it can be read.
    """
    document, problems = read(body)
    if document is None:
        return problems
    steps = {step.name: step for step in document.steps}
    problems += findings(body, document)
    problems += step_request_checks.findings(document, steps)
    problems += reference_checks.findings(document, steps)
    problems += step_dependencies.findings(document, steps)
    problems += condition_checks.findings(document, steps)
    problems += rules.findings(_well_formed(document, problems))
    positions = {None: -1} | {name: position for position, name in enumerate(steps)}
    return sorted(dict.fromkeys(problems), key=lambda f: (f.severity, positions.get(f.step, -1)))


def refuse_errors(body: str, source: str) -> None:
    """Refuse the definition ``body``, which is from ``source``, if it is not valid.

    Raises:
        DefinitionError: validation finds an error in it.
    """
    wrong = [finding for finding in check(body) if finding.severity == "error"]
    if wrong:
        raise DefinitionError(
            f"{source}: {wrong[0].path}: {wrong[0].problem}; {wrong[0].fix}. "
            "trainyard validate lists all"
        )


def _well_formed(document: Document, problems: list[Finding]) -> Document:
    """Return ``document`` without steps whose values have wrong types, which rules can't read."""
    broken = {finding.step for finding in problems if finding.rule in MALFORMED_RULES}
    return replace(document, steps=tuple(s for s in document.steps if s.name not in broken))


def findings(body: str, document: Document) -> Iterator[Finding]:
    """Check length of the definition and number of parameters, against botocore's model."""
    longest = service_shapes("sagemaker")["PipelineDefinition"]["max"]
    if len(body) > longest:
        yield ROOT.error(
            "quota",
            f"the definition has {len(body)} characters, at most {longest} are taken",
            reason="CreatePipeline refuses it",
            fix="use fewer steps or shorter settings, or PipelineDefinitionS3Location",
            source="botocore: CreatePipelineRequest.PipelineDefinition",
        )
    most = service_shapes("sagemaker")["ParameterList"]["max"]
    if len(document.parameters) > most:
        yield ROOT.join("Parameters").error(
            "quota",
            f"{len(document.parameters)} parameters, at most {most} can be given at a start",
            reason="StartPipelineExecution takes no more",
            fix="make constants of those that never change",
            source="botocore: StartPipelineExecutionRequest.PipelineParameters",
        )
