"""What stands in the boxes of a graph."""

import pytest

from trainyard.console.boxes import shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Abalone-ModelRegister", "Abalone-ModelRegister"),
        ("Abalone-ModelRegister-RegisterModel", "Abalone-Model…erModel"),
        ("データの前処理を行う工程その一", "データの前処…その一"),
    ],
)
def test_a_name_that_is_too_long_keeps_its_beginning_and_its_end(text: str, shown: str):
    assert shortened(text, 21) == shown
