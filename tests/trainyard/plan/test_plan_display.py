"""What a person sees. Drawn anew by ``python -m tests.trainyard.plan.pictures``: then look."""

import pytest

from tests.conftest import CHECKOUT
from tests.trainyard.plan.pictures import CHANGES, PICTURES, Studio, without_hashes
from trainyard.plan.plan_display import render_plan

pytestmark = pytest.mark.long

WIDEST = 152  # columns of a line
KEPT = {path.stem: path.read_text(encoding="utf-8") for path in PICTURES.glob("*.txt")}


@pytest.mark.parametrize("name", CHANGES)
def test_the_picture_of_a_change_is_plain_text_of_bearable_width(studio: Studio, name: str):
    assert without_hashes(studio.draw(CHANGES[name])) == without_hashes(KEPT[name])
    lines = KEPT[name].splitlines()
    assert all(line == line.rstrip() and line.isprintable() for line in lines)
    assert not [line for line in lines if len(line) > WIDEST and not line.startswith("budget")]


def test_every_picture_is_of_a_change():
    assert KEPT.keys() == CHANGES.keys()


def test_on_a_narrow_terminal_the_reasons_stand_below(studio: Studio):
    plan = studio.plan(CHANGES["learning-rate"])
    wide, narrow = render_plan(plan), render_plan(plan, 100)
    assert max(line.cell_len for line in narrow) <= 100 < max(line.cell_len for line in wide)
    said = "\n".join(line.plain for line in narrow)
    assert "  Train: learning_rate 0.0006 → 0.0008" in said
    assert "  Gate: provenance changed, Evaluate runs" in said


@pytest.mark.parametrize("name", ["evaluate-job", "drift", "foreseen"])
def test_the_pictures_of_the_guide_are_these(name: str):
    guide = (CHECKOUT / "docs/plan.md").read_text(encoding="utf-8")
    assert without_hashes(KEPT[name]) in without_hashes(guide)
