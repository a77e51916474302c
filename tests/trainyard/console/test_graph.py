"""Titles in the boxes of a graph."""

import pytest

from trainyard.console.graph import shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Abalone-ModelRegister", "Abalone-ModelRegister"),
        ("Abalone-ModelRegister-RegisterModel", "Abalone-Model…erModel"),
        ("Evaluate on held-out data", "Evaluate on held-out…"),
        ("データの前処理を行う工程その一", "データの前処…その一"),
    ],
)
def test_of_what_is_too_long_the_beginning_stays_and_of_a_name_the_end(text: str, shown: str):
    assert shortened(text, 21) == shown
