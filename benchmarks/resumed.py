"""Cases that take an hour together: each is shown and kept as it comes, and none is run twice."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from trainyard.common.atomic_file import write


def each(
    cases: Iterable[str],
    measured: Callable[[str], dict[str, Any]],
    path: Path | None,
    setting: Mapping[str, Any],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each case's name and what ``measured`` finds of it, as JSON gives it back.

    Args:
        path: after each case the file has all that was found; what it has already is taken from it.
            What ``failed`` is not kept.
        setting: what was the same in all cases.

    Raises:
        typer.BadParameter: the file's cases were measured in another setting.
    """
    found = kept(path, setting)
    for name in cases:
        if name not in found:
            found[name] = json.loads(json.dumps(measured(name)))
            if path:
                whole = {n: one for n, one in found.items() if "failed" not in one}
                write(path, json.dumps({"setting": setting, "cases": whole}, indent=1))
        yield name, found[name]


def kept(path: Path | None, setting: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The cases that the file has, and what was found of each.

    Raises:
        typer.BadParameter: they were measured in another setting.
    """
    whole = json.loads(path.read_text()) if path and path.is_file() else {}
    if whole and whole["setting"] != setting:
        raise typer.BadParameter(
            f"{path}: its cases were measured with {whole['setting']}, these would be with "
            f"{dict(setting)}; name another file, or delete it"
        )
    return whole.get("cases", {})
