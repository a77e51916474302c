"""The command that tries a workload: shard the sample data, check all rules, show the faults."""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from training.tools.contract_tests import (
    curve_rules,
    forward_rules,
    packing_rules,
    scoring_rules,
    state_rules,
)
from training.tools.contract_tests.contract import RULES, Rule, Trial, Verdict, check_rules
from training.tools.contract_tests.packing_rules import TWICE, run_shard_jobs
from training.workloads import load_spec, parse_settings
from trainyard.common.errors import TrainyardError, suggest_nearest

ORDER = (packing_rules, forward_rules, state_rules, scoring_rules, curve_rules)
"""The modules that define rules, in the order in which they are checked."""

console = Console()


def list_rules() -> list[Rule]:
    """Return all rules, in the order of their modules."""
    names = [module.__name__ for module in ORDER]
    return sorted(RULES, key=lambda rule: names.index(rule.check.__module__))


def select_rules(only: Sequence[str]) -> list[Rule]:
    """Return the rules ``only`` and those that they need; all rules if it is empty.

    Raises:
        TrainyardError: there is no rule with one of these names.
    """
    rules_by_name = {rule.name: rule for rule in list_rules()}
    selection, waiting = set[str](), list(only or ())
    while waiting:
        name = waiting.pop()
        if name not in rules_by_name:
            raise TrainyardError(
                f"--only {name!r}: there is no such rule; "
                f"{suggest_nearest(name, list(rules_by_name))}"
            )
        selection.add(name)
        waiting += rules_by_name[name].needs
    return [rule for rule in list_rules() if not only or rule.name in selection]


def check_workload(
    name: str, settings: str, raw: Path, work: Path, only: Sequence[str] = ()
) -> Iterator[Verdict]:
    """Check the rules of the contract on the data in ``raw``; ``work`` must be an empty folder.

    Raises:
        TrainyardError: the workload is unknown, a setting is wrong, or its data cannot be read.
    """
    config = load_spec(name).config.model_validate(parse_settings(settings))
    imports = [rule for rule in select_rules(only) if rule.name == "imports"]
    other_rules = [rule for rule in select_rules(only) if rule not in imports]
    trial = Trial(name, config.model_dump(mode="json"), work / TWICE[0])
    yield from check_rules(trial, imports)
    needs_second = any(rule.check is packing_rules.check_packing for rule in other_rules)
    folders = TWICE if needs_second else TWICE[:1]
    for reason in run_shard_jobs(name, settings, raw, work, folders=folders).values():
        if reason:
            raise TrainyardError(f"{raw}: the shard step failed on it:\n{reason[-2000:]}")
    yield from check_rules(trial, other_rules)


def main(
    workload: Annotated[str, typer.Argument(help="package.module, or a built-in workload")],
    data: Annotated[Path, typer.Option(help="folder of raw sample data, as for the shard step")],
    config: Annotated[str, typer.Option(help="the workload's settings, as JSON")] = "{}",
    only: Annotated[
        list[str] | None, typer.Option(help="check only this rule and those it needs")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="folder that holds the package")] = None,
) -> None:
    """Check a workload's contract on sample data: in this process, in others, on two ranks.

    Exits with 1 if a rule is broken.
    """
    sys.path[:0] = [str(path.resolve()) for path in (source, Path()) if path]
    began, faults = time.monotonic(), 0
    try:
        with tempfile.TemporaryDirectory() as work:
            for verdict in check_workload(workload, config, data.resolve(), Path(work), only or ()):
                _print_verdict(verdict)
                faults += len(verdict.faults)
    except TrainyardError as error:
        console.print(f"error: {error}", markup=False, style="red")
        raise typer.Exit(1) from None
    seconds = time.monotonic() - began
    console.print(f"\n{workload}: {faults or 'no'} fault{'s' * (faults != 1)}, {seconds:.0f} s")
    raise typer.Exit(1 if faults else 0)


def _print_verdict(verdict: Verdict) -> None:
    """Print a verdict, with a table for each fault."""
    name, says = verdict.rule.name, verdict.rule.says
    if verdict.why_not:
        _print_line(f"[yellow]–[/] {name}: not checked: {escape(verdict.why_not)}")
    elif not verdict.faults:
        _print_line(f"[green]✓[/] {name}: {says}")
    for fault in verdict.faults:
        table = Table(show_header=False, box=None, padding=(0, 1))
        for label, text in (
            ("found", fault.observation),
            ("where", fault.location),
            ("fix", fault.fix),
        ):
            table.add_row("", label, escape(text))
        _print_line(f"[red]✗[/] {name}: {says}")
        console.print(table)


def _print_line(line: str) -> None:
    console.print(line, soft_wrap=True)
