"""Graphs of steps: boxes do not overlap and fit their titles; many steps take little time."""

import json
import random
import time
from itertools import pairwise
from pathlib import Path

import pytest

from trainyard.console.graph import HEIGHT, NARROWEST, WIDEST, compute_layout, flow, graph

DEFINITIONS = Path(__file__).parents[1] / "validate/definitions"


@pytest.mark.parametrize("path", sorted(DEFINITIONS.glob("*.json")), ids=lambda path: path.stem)
def test_no_two_steps_of_anybodys_definition_are_drawn_in_one_place(path: Path):
    text = json.loads(path.read_text(encoding="utf-8"))
    found = flow(text.get("definition", text), "Executing", [])
    drawn = graph(found, set(), [])
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
    drawn = graph(flow({"Steps": steps}, "Executing", []), set(), [])
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
