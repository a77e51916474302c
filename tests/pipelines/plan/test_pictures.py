"""What a person sees. Drawn anew by ``python -m tests.pipelines.plan.pictures``: then look."""

import pytest

from tests.pipelines.plan.pictures import CHANGES, PICTURES, Studio, without_hashes

WIDEST = 140  # columns of a line, but for the longest reasons


@pytest.mark.parametrize("name", CHANGES)
def test_the_picture_of_a_change(studio: Studio, name: str):
    drawn = studio.draw(CHANGES[name])
    kept = (PICTURES / f"{name}.txt").read_text(encoding="utf-8")
    assert without_hashes(drawn) == without_hashes(kept)


def test_every_picture_is_of_a_change():
    assert {path.stem for path in PICTURES.glob("*.txt")} == set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_a_picture_is_plain_text_of_bearable_width(name: str):
    lines = (PICTURES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert all(line == line.rstrip() and line.isprintable() for line in lines)
    assert not [line for line in lines if len(line) > WIDEST and not line.startswith("budget")]
