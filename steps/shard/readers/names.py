"""Whether a header or schema has the columns that are declared."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten

from trainyard.common.errors import DataError


def check_names(path: Path, names: Sequence[str], declared: Iterable[str]) -> None:
    """Each declared column stands in ``names`` once.

    Raises:
        DataError: one is missing, or stands twice.
    """
    for name in declared:
        if name not in names:
            near = get_close_matches(name, names, 1)
            meant = f"; is it {near[0]!r}?" if near else "."
            raise DataError(
                f"{path}: has no column {name!r}{meant} Its columns are "
                f"{shorten(', '.join(map(repr, names)), 600)}: rename it, or change the recipe"
            )
        if names.count(name) > 1:
            places = [str(i) for i, other in enumerate(names, 1) if other == name]
            raise DataError(
                f"{path}: column {name!r} stands {len(places)} times, as "
                f"{', '.join(places)}; "
                "which one is meant? Rename the others"
            )
