"""A model card as headings and tables: AWS's schema is nested objects, lists and texts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEEPEST = 6
MOST_ROWS = 200
MOST_BLOCKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A heading with a table below it."""

    title: str
    level: int
    """0 for a section of the card, 1 for what is in it, …"""

    rows: Sequence[tuple[str, Any]] = ()
    """(name, value or list of values)."""

    head: Sequence[str] = ()
    cells: Sequence[Sequence[Any]] = ()
    """A table of things that are alike, such as metrics."""

    left_out: int = 0
    """Rows that are not shown."""


def blocks(content: str) -> list[Block]:
    """The card's content; empty for an empty one.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        document = json.loads(content or "{}")
    except RecursionError:
        raise ValueError("the card is nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("the card is no JSON object")
    return [
        block for block in _blocks("", document, 0) if block.rows or block.cells or block.title
    ][:MOST_BLOCKS]


def words(name: str) -> str:
    """``training_job_details`` → ``Training job details``."""
    said = str(name).replace("_", " ").strip()
    return said[:1].upper() + said[1:]


def _blocks(title: str, value: Mapping[str, Any], level: int) -> Iterator[Block]:
    plain = [(words(k), _shown(v)) for k, v in value.items() if _is_plain(v)]
    nested = [(words(k), v) for k, v in value.items() if not _is_plain(v)]
    if title or plain:
        yield Block(title=title, level=level, rows=plain[:MOST_ROWS],
                    left_out=max(0, len(plain) - MOST_ROWS))  # fmt: skip
    for name, inner in nested:
        yield from _nested(name, inner, level + 1 if title else level)


def _nested(title: str, value: Any, level: int) -> Iterator[Block]:
    if level >= DEEPEST:
        text = json.dumps(value, default=str, ensure_ascii=False)
        yield Block(title=title, level=level, rows=[("", text)])
    elif isinstance(value, Mapping):
        yield from _blocks(title, value, level)
    elif all(isinstance(one, Mapping) and all(map(_is_plain, one.values())) for one in value):
        yield _table(title, value, level)
    else:
        for number, one in enumerate(value, 1):
            yield from _member(title, number, one, level)


def _member(title: str, number: int, one: Any, level: int) -> Iterator[Block]:
    if not isinstance(one, Mapping | list):
        yield Block(title=f"{title} {number}", level=level, rows=[("", one)])
    elif isinstance(one, Mapping) and one.get("name"):
        rest = {key: value for key, value in one.items() if key != "name"}
        yield from _nested(f"{title}: {one['name']}", rest, level)
    else:
        yield from _nested(f"{title} {number}", one, level + 1)


def _table(title: str, value: Sequence[Mapping[str, Any]], level: int) -> Block:
    keys = list(dict.fromkeys(key for one in value for key in one))
    cells = [[_shown(one.get(key)) for key in keys] for one in value[:MOST_ROWS]]
    return Block(
        title=title,
        level=level,
        head=[words(key) for key in keys],
        cells=cells,
        left_out=max(0, len(value) - MOST_ROWS),
    )


def _is_plain(value: Any) -> bool:
    """A text, a number, or a list of them: what has a place in one cell."""
    if isinstance(value, list):
        return all(not isinstance(one, list | dict) for one in value)
    return not isinstance(value, dict)


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return value
    return "" if value is None else value
