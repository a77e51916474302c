"""Run all checks of a definition, offline and without credentials, and print the findings."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from trainyard.common.errors import DefinitionError
from trainyard.language.definition_document import Document
from trainyard.terminal import console
from trainyard.validate import (
    expression_checks,
    reference_checks,
    rules,
    step_dependencies,
    step_request_checks,
)
from trainyard.validate.location import Finding
from trainyard.validate.step_properties import load_service_shapes
from trainyard.validate.top_level_structure import ROOT, read_definition

MALFORMED_RULES = {
    "type",
    "expression-type",
    "number-in-string",
    "expression",
    "form",
    "parameter-type",
}
"""Rules whose findings mean that values of a step may have other types than AWS's shapes say."""


def check_definition(body: str) -> list[Finding]:
    """Return the findings in the definition ``body`` (JSON text): errors first, then by step.

    If its top-level structure is wrong, check as much of it as can be parsed.
    """
    document, problems = read_definition(body)
    if document is None:
        return problems
    steps = {step.name: step for step in document.steps}
    problems += check_limits(body, document)
    problems += step_request_checks.check_step_requests(document, steps)
    problems += reference_checks.check_references(document, steps)
    problems += step_dependencies.check_dependencies(document, steps)
    problems += expression_checks.check_conditions(document, steps)
    # Rules rely on the types of values, so they do not see steps in which a type is wrong.
    broken = {finding.step for finding in problems if finding.rule in MALFORMED_RULES}
    well_formed = replace(document, steps=tuple(s for s in document.steps if s.name not in broken))
    problems += rules.apply_rules(well_formed)
    # Two checks may have found the same problem: ``dict.fromkeys`` keeps one of equal findings.
    positions = {None: -1} | {name: position for position, name in enumerate(steps)}
    return sorted(dict.fromkeys(problems), key=lambda f: (f.severity, positions.get(f.step, -1)))


def refuse_errors(body: str, source: str) -> None:
    """Raise DefinitionError if the definition ``body`` has errors; ``source`` names it in messages.

    Raises:
        DefinitionError: it has an error; the message is about the first.
    """
    wrong = [finding for finding in check_definition(body) if finding.severity == "error"]
    if wrong:
        raise DefinitionError(
            f"{source}: {wrong[0].path}: {wrong[0].problem}; {wrong[0].fix}. "
            "trainyard validate lists all"
        )


def check_limits(body: str, document: Document) -> Iterator[Finding]:
    """Check the definition's length and number of parameters against botocore's limits."""
    longest = load_service_shapes("sagemaker")["PipelineDefinition"]["max"]
    if len(body) > longest:
        yield ROOT.make_error(
            "quota",
            f"the definition has {len(body)} characters, at most {longest} are accepted",
            reason="CreatePipeline refuses it",
            fix="use fewer steps or shorter settings, or PipelineDefinitionS3Location",
            source="botocore: CreatePipelineRequest.PipelineDefinition",
        )
    max_parameters = load_service_shapes("sagemaker")["ParameterList"]["max"]
    if len(document.parameters) > max_parameters:
        yield ROOT.join("Parameters").make_error(
            "quota",
            f"{len(document.parameters)} parameters, at most {max_parameters} can be passed to an "
            "execution",
            reason="StartPipelineExecution accepts no more",
            fix="make constants of those that never change",
            source="botocore: StartPipelineExecutionRequest.PipelineParameters",
        )


# Print findings on a terminal, grouped by step, errors first. They are readable without colours.

JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
COLOURS = {"error": "bold red", "warning": "yellow"}


def report_findings(findings: Sequence[Finding], body: str, as_json: bool) -> NoReturn:
    """Print the findings in the definition ``body``, and end the command.

    ``body`` is empty if there is no definition, such as for errors in a recipe.

    Raises:
        typer.Exit: always; with status 1 if a finding is an error, else 0.
    """
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print_findings(findings, _summarize_document(body))
    raise typer.Exit(any(finding.severity == "error" for finding in findings))


def _summarize_document(body: str) -> str:
    """Return a summary of what was checked: numbers of steps and parameters, and types of steps."""
    document, _ = read_definition(body) if body else (None, [])
    if document is None:
        return "no definition to check"
    types = ", ".join(dict.fromkeys(step.type for step in document.steps))
    steps, parameters = format_noun_count(len(document.steps), "step"), len(document.parameters)
    return f"{steps} ({types}) and {format_noun_count(parameters, 'parameter')} checked"


def print_findings(findings: Sequence[Finding], summary: str) -> None:
    """Print ``findings`` step by step, then their number and ``summary``, which says what was
    checked.
    """
    for step in dict.fromkeys(finding.step for finding in findings):
        console.print(f"[bold]{escape(_format_title(step, findings))}[/]", highlight=False)
        for finding in findings:
            if finding.step == step:
                colour = COLOURS[finding.severity]
                heading = f"  [{colour}]{finding.severity:7}[/] {escape(finding.path)}"
                console.print(f"{heading}  [dim]{finding.rule}[/]", highlight=False)
                rows = (("", finding.problem), ("why", finding.why), ("fix", finding.fix))
                for label, text in (*rows, ("from", finding.source)):
                    if text:
                        console.print(
                            f"          [dim]{label:4}[/] {escape(text)}", highlight=False
                        )
        console.print()
    console.print(_format_summary(findings, summary), highlight=False)


def format_finding(finding: Finding) -> str:
    """Return a finding as one line, for an error message."""
    return f"{finding.path}: {finding.problem}; {finding.fix} ({finding.source})"


def _format_title(step: str | None, findings: Iterable[Finding]) -> str:
    if step is not None:
        return f"Step {step}"
    recipe = any(finding.rule == "recipe" for finding in findings)
    return "The recipe" if recipe else "The pipeline"


def _format_summary(findings: Sequence[Finding], summary: str) -> str:
    """Return a line with the numbers of errors and warnings, or "valid", before ``summary``."""
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    if not findings:
        return f"[green]valid[/]: {summary}"
    colour = COLOURS["error" if errors else "warning"]
    counts = f"{format_noun_count(errors, 'error')}, {format_noun_count(warnings, 'warning')}"
    return f"[{colour}]{counts}[/]: {summary}"


def format_noun_count(number: int, noun: str) -> str:
    """Return the number and the noun, in plural if needed: ``1 error``, ``2 errors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
