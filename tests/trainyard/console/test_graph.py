"""Graphs of an execution's steps: what waits for what, the critical path, and the drawing."""

import json
import random
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.trainyard.emulator.harness import (
    compare,
    condition_step,
    fail_step,
    pipeline,
    process_step,
    train_step,
)
from trainyard.console.graph import (
    HEIGHT,
    NARROWEST,
    WIDEST,
    Flow,
    build_flow,
    build_timeline,
    compute_layout,
    draw_graph,
    find_critical_path,
)
from trainyard.runs.execution import Step

DEFINITIONS = Path(__file__).parents[1] / "validate/definitions"
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
    found = build_flow(DOCUMENT, "Executing", [step("Prepare", 0, None)])
    assert [node.status for node in found.nodes.values()].count("NotStarted") == 8
    assert edges(found) == {
        ("Prepare", "Small", "order"), ("Prepare", "Large", "order"), ("Prepare", "Score", "order"),
        ("Small", "Score", "order"), ("Large", "Score", "order"), ("Score", "Good", "order"),
        ("Good", "Inner", "if"), ("Good", "Worse", "else"),
        ("Inner", "Deploy", "if"), ("Inner", "Bad", "else"),
    }  # fmt: skip


def test_what_a_condition_did_not_choose_is_said_however_deep_it_is_nested():
    outcome = {"Condition": {"Outcome": "False"}}
    found = build_flow(DOCUMENT, "Executing", [step("Good", 0, 1, metadata=outcome)])
    said = {name: node.status for name, node in found.nodes.items()}
    assert [n for n, status in said.items() if status == "NotTaken"] == ["Inner", "Deploy", "Bad"]
    assert said["Worse"] == "NotStarted"
    assert {node.status for node in build_flow(DOCUMENT, "Stopped", []).nodes.values()} == {
        "NotRun"
    }


def test_data_that_a_step_reads_is_told_from_mere_order():
    where = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}
    document = pipeline([train_step("Train", "x"), fail_step("Say", {"Std:Join": {"On": "", "Values": [where]}})])  # fmt: skip # noqa: E501
    assert edges(build_flow(document, "Executing", [])) == {("Train", "Say", "data")}


def test_each_iteration_of_a_loop_is_a_step():
    body = [process_step("Load", "x"), process_step("Use", "x", ("Load",))]
    loop = {"Name": "All", "Type": "ForEach", "Arguments": {"Items": [1, 2], "ForEachBody": body}}
    begun = [step(f"{name}-{n}", 0, 1, loop="All") for n in range(2) for name in ("Load", "Use")]
    found = build_flow(pipeline([loop]), "Executing", [step("All", 0, None), *begun])
    assert list(found.nodes) == ["All", "Load-0", "Load-1", "Use-0", "Use-1"]
    assert edges(found) == {
        ("All", "Load-0", "each"), ("All", "Load-1", "each"),
        ("All", "Use-0", "each"), ("All", "Use-1", "each"),
        ("Load-0", "Use-0", "order"), ("Load-1", "Use-1", "order"),
    }  # fmt: skip


def test_the_critical_path_is_the_chain_that_ended_last():
    found = build_flow(DOCUMENT, "Succeeded", [])
    ends = {"Prepare": 5.0, "Small": 9.0, "Large": 30.0, "Score": 31.0}
    assert find_critical_path(found, ends) == ["Prepare", "Large", "Score"]
    assert find_critical_path(found, {}) == []


def test_waiting_for_machines_is_told_apart_and_what_runs_has_no_end():
    begun = [step("Prepare", 0, 10), step("Large", 10, None), step("Small", 10, None)]
    machines = {"Prepare": START + timedelta(seconds=4), "Small": None}
    found = build_flow(DOCUMENT, "Executing", begun)
    chart = build_timeline(found, START, START + timedelta(seconds=100), machines)
    assert chart and chart.runs and chart.span > 100
    bars = {bar.node.name: bar for bar in chart.bars}
    assert bars["Prepare"].machines == 4 and bars["Prepare"].end == 10
    assert bars["Small"].waits and not bars["Large"].waits and bars["Large"].end is None
    assert sum(tick.at <= chart.span for tick in chart.ticks) <= 10
    assert build_timeline(build_flow(DOCUMENT, "Executing", []), START, START, {}) is None


@pytest.mark.parametrize("path", sorted(DEFINITIONS.glob("*.json")), ids=lambda path: path.stem)
def test_no_two_steps_of_anybodys_definition_are_drawn_in_one_place(path: Path):
    text = json.loads(path.read_text(encoding="utf-8"))
    found = build_flow(text.get("definition", text), "Executing", [])
    drawn = draw_graph(found, set(), [])
    boxes = sorted(drawn.boxes, key=lambda box: (box.y, box.x))
    for left, right in pairwise(boxes):
        assert left.y != right.y or right.x > left.x + left.width
    at = {box.node.name: box for box in boxes}
    for line in drawn.lines:
        assert at[line.edge.source].y + HEIGHT <= at[line.edge.target].y
    assert all(box.x >= 0 and box.x + box.width <= drawn.width for box in boxes)


def test_a_definition_that_goes_in_a_circle_is_drawn_all_the_same():
    sizes = tuple((name, 150.0) for name in "ABC")
    spots, ways, _ = compute_layout(sizes, (("A", "B"), ("B", "C"), ("C", "A")))
    assert len(set(spots)) == 3 and len(ways) == 3


def test_a_box_is_as_wide_as_its_title_needs_up_to_a_limit():
    titles = ["Train", "Does the gate pass the model?", "データの前処理を行う工程その一", "x" * 500]
    steps = [{"Name": f"S{n}", "Type": "Fail", "DisplayName": t} for n, t in enumerate(titles)]
    drawn = draw_graph(build_flow({"Steps": steps}, "Executing", []), set(), [])
    widths = [box.width for box in drawn.boxes]
    assert NARROWEST <= widths[0] < widths[1] < WIDEST == widths[3]
    assert widths[2] > widths[0]


def test_three_hundred_steps_are_laid_out_in_a_second_of_cpu():
    chance = random.Random(3)
    steps = [f"S{n}" for n in range(300)]
    before = [chance.sample(range(max(0, n - 12), n), min(n, 2)) for n in range(300)]
    edges = tuple((steps[m], steps[n]) for n, some in enumerate(before) for m in some)
    began = time.process_time()
    spots, ways, _ = compute_layout(tuple((step, 180.0) for step in steps), edges)
    assert time.process_time() - began < 1
    assert len(set(spots)) == 300 and len(ways) == len(edges)
