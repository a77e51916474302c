"""Steps of an execution, their dependencies, and the critical path."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.trainyard.emulator.harness import (
    compare,
    condition_step,
    fail_step,
    pipeline,
    process_step,
    train_step,
)
from trainyard.console.graph import Flow, critical_path, flow, timeline
from trainyard.runs.execution import Step

START = datetime(2026, 1, 1, tzinfo=UTC)
SAME = [compare("Equals", "a", "a")]
INNER = condition_step("Inner", SAME, [process_step("Deploy", "true")], [fail_step("Bad", "x")])
DOCUMENT = pipeline(
    [
        process_step("Prepare", "true"),
        train_step("Small", "true", DependsOn=["Prepare"]),
        train_step("Large", "true", DependsOn=["Prepare"]),
        process_step("Score", "true", ("Small", "Large", "Prepare")),
        condition_step("Good", SAME, [INNER], [fail_step("Worse", "x")], DependsOn=["Score"]),
    ]
)


def step(name: str, began: float, ended: float | None, **more: Any) -> Step:
    values = {"title": name, "status": "Succeeded" if ended else "Executing", "reason": ""}
    when = [None if at is None else START + timedelta(seconds=at) for at in (began, ended)]
    told = {"cached": False, "metadata": {}, **values, **more}
    return Step(name=name, started=when[0], ended=when[1], **told)


def edges(found: Flow) -> set[tuple[str, str, str]]:
    return {(edge.source, edge.target, edge.label or edge.kind) for edge in found.edges}


def test_every_step_of_the_definition_is_there_with_what_it_waits_for():
    found = flow(DOCUMENT, "Executing", [step("Prepare", 0, None)])
    assert [node.status for node in found.nodes.values()].count("NotStarted") == 8
    assert edges(found) == {
        ("Prepare", "Small", "order"), ("Prepare", "Large", "order"), ("Prepare", "Score", "order"),
        ("Small", "Score", "order"), ("Large", "Score", "order"), ("Score", "Good", "order"),
        ("Good", "Inner", "if"), ("Good", "Worse", "else"),
        ("Inner", "Deploy", "if"), ("Inner", "Bad", "else"),
    }  # fmt: skip


def test_what_a_condition_did_not_choose_is_said_however_deep_it_is_nested():
    outcome = {"Condition": {"Outcome": "False"}}
    found = flow(DOCUMENT, "Executing", [step("Good", 0, 1, metadata=outcome)])
    said = {name: node.status for name, node in found.nodes.items()}
    assert [n for n, status in said.items() if status == "NotTaken"] == ["Inner", "Deploy", "Bad"]
    assert said["Worse"] == "NotStarted"
    assert {node.status for node in flow(DOCUMENT, "Stopped", []).nodes.values()} == {"NotRun"}


def test_data_that_a_step_reads_is_told_from_mere_order():
    where = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}
    document = pipeline([train_step("Train", "x"), fail_step("Say", {"Std:Join": {"On": "", "Values": [where]}})])  # fmt: skip # noqa: E501
    assert edges(flow(document, "Executing", [])) == {("Train", "Say", "data")}


def test_each_iteration_of_a_loop_is_a_step():
    body = [process_step("Load", "x"), process_step("Use", "x", ("Load",))]
    loop = {"Name": "All", "Type": "ForEach", "Arguments": {"Items": [1, 2], "ForEachBody": body}}
    begun = [step(f"{name}-{n}", 0, 1, loop="All") for n in range(2) for name in ("Load", "Use")]
    found = flow(pipeline([loop]), "Executing", [step("All", 0, None), *begun])
    assert list(found.nodes) == ["All", "Load-0", "Load-1", "Use-0", "Use-1"]
    assert edges(found) == {
        ("All", "Load-0", "each"), ("All", "Load-1", "each"),
        ("All", "Use-0", "each"), ("All", "Use-1", "each"),
        ("Load-0", "Use-0", "order"), ("Load-1", "Use-1", "order"),
    }  # fmt: skip


def test_the_critical_path_is_the_chain_that_ended_last():
    found = flow(DOCUMENT, "Succeeded", [])
    ends = {"Prepare": 5.0, "Small": 9.0, "Large": 30.0, "Score": 31.0}
    assert critical_path(found, ends) == ["Prepare", "Large", "Score"]
    assert critical_path(found, {}) == []


def test_waiting_for_machines_is_told_apart_and_what_runs_has_no_end():
    begun = [step("Prepare", 0, 10), step("Large", 10, None), step("Small", 10, None)]
    machines = {"Prepare": START + timedelta(seconds=4), "Small": None}
    found = flow(DOCUMENT, "Executing", begun)
    chart = timeline(found, START, START + timedelta(seconds=100), machines)
    assert chart and chart.runs and chart.span > 100
    bars = {bar.node.name: bar for bar in chart.bars}
    assert bars["Prepare"].machines == 4 and bars["Prepare"].end == 10
    assert bars["Small"].waits and not bars["Large"].waits and bars["Large"].end is None
    assert sum(tick.at <= chart.span for tick in chart.ticks) <= 10
    assert timeline(flow(DOCUMENT, "Executing", []), START, START, {}) is None
