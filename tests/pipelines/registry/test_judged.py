"""A verdict is a comparison with one champion."""

import pytest

from pipelines.registry.champion import check_champion
from trainyard.common.errors import GateError

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("judged", "now", "refused"),
    [
        ("none", None, None),
        ("one", "one", None),
        (None, "one", None),  # the recipe compares with no champion
        ("none", "one", "compared with none, the champion is now one"),
        ("one", "two", "compared with one, the champion is now two"),
        ("one", None, "the champion is now none: it was rejected, or deleted"),
    ],
)
def test_a_champion_that_moved_refuses(judged, now, refused):
    if refused is None:
        return check_champion("arn", judged, now)
    with pytest.raises(GateError, match=refused):
        check_champion("arn", judged, now)
