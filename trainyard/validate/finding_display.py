"""Display findings on a terminal: grouped by step, errors first, readable without colour, too."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from trainyard.terminal import console
from trainyard.validate.location import Finding
from trainyard.validate.outer_form import read

JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
COLOURS = {"error": "bold red", "warning": "yellow"}


def report(findings: Sequence[Finding], body: str, as_json: bool) -> NoReturn:
    """Print the findings in the definition ``body`` ("": there is none), and end the command.

    Raises:
        typer.Exit: with status 1 when there is an error, else 0.
    """
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        show(findings, _summarize_document(body))
    raise typer.Exit(any(finding.severity == "error" for finding in findings))


def _summarize_document(body: str) -> str:
    """Return a summary of what was checked."""
    document, _ = read(body) if body else (None, [])
    if document is None:
        return "no definition to check"
    types = ", ".join(dict.fromkeys(step.type for step in document.steps))
    steps, parameters = count(len(document.steps), "step"), len(document.parameters)
    return f"{steps} ({types}) and {count(parameters, 'parameter')} checked"


def show(findings: Sequence[Finding], summary: str) -> None:
    """Print ``findings`` step by step, and one line on what was ``summary``."""
    for step in dict.fromkeys(finding.step for finding in findings):
        console.print(f"[bold]{escape(_title(step, findings))}[/]", highlight=False)
        for finding in findings:
            if finding.step == step:
                _print_finding(finding)
        console.print()
    console.print(_summary(findings, summary), highlight=False)


def line(finding: Finding) -> str:
    """Return a finding in one line, for an error's message."""
    return f"{finding.path}: {finding.problem}; {finding.fix} ({finding.source})"


def _title(step: str | None, findings: Iterable[Finding]) -> str:
    if step is not None:
        return f"Step {step}"
    recipe = any(finding.rule == "recipe" for finding in findings)
    return "The recipe" if recipe else "The pipeline"


def _print_finding(finding: Finding) -> None:
    colour = COLOURS[finding.severity]
    console.print(
        f"  [{colour}]{finding.severity:7}[/] {escape(finding.path)}  [dim]{finding.rule}[/]",
        highlight=False,
    )
    rows = (("", finding.problem), ("why", finding.why), ("fix", finding.fix))
    for label, text in (*rows, ("from", finding.source)):
        if text:
            console.print(f"          [dim]{label:4}[/] {escape(text)}", highlight=False)


def _summary(findings: Sequence[Finding], summary: str) -> str:
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    if not findings:
        return f"[green]valid[/]: {summary}"
    colour = COLOURS["error" if errors else "warning"]
    return f"[{colour}]{count(errors, 'error')}, {count(warnings, 'warning')}[/]: {summary}"


def count(number: int, noun: str) -> str:
    """Return ``1 error``, ``2 errors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
