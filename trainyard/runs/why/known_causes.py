"""Texts by which a cause of failure is known, each with its source: ``signatures/*.toml``.

One file is one family; a new cause is a new entry. ``pattern`` has what a program or AWS prints,
``wording`` what people and other versions make of it: by that a cause is never more than likely.
``cause`` and ``fix`` may name the groups of both in braces. Of a group that found nothing brackets
around it go; in JSON it is ``*``.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_NOTHING = "\0"
_GROUPS = re.compile(r"(?<!\{)(?:\{\w+\})+")
_NAMES = re.compile(r"ModuleNotFoundError|cannot import name|unrecognized arguments:")
"""Before names that a program gave, which may be those of any cause."""

FOLDER = Path(__file__).with_name("signatures")
Level = Literal["service", "cause", "hint", "likely", "consequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One known text."""

    name: str
    """``family/name``."""

    level: Level
    """service: what AWS itself says of the job. cause: whoever prints it has failed by it; both
    may be certain. hint: whoever raises it has failed by it, yet what it means is no more than
    likely. likely: it mostly means this, or follows from another rank. consequence: another rank,
    or what was called, has failed before; it counts where nothing else was found."""

    pattern: re.Pattern[str]
    wording: re.Pattern[str] | None = None
    cause: str
    """A sentence."""

    fix: str
    source: str
    """Where the text is from: a page, a thread, or the program that prints it."""

    def told(self, found: re.Match[str]) -> tuple[str, str]:
        """Cause and fix, with what the text says filled in."""
        groups = found.groupdict()
        return _filled(self.cause, groups), _filled(self.fix, groups)


def _filled(sentence: str, groups: Mapping[str, str | None]) -> str:
    """The sentence with the groups. Those that stand side by side are alternatives."""

    def found(names: re.Match[str]) -> str:
        texts = (groups.get(name) or "" for name in re.findall(r"\w+", names[0]))
        return "".join(texts).strip() or _NOTHING

    text = _GROUPS.sub(found, sentence).replace("{{", "{").replace("}}", "}")
    text = text.replace(f'"{_NOTHING}"', '"*"')
    text = re.sub(rf" \((?:on )?{_NOTHING}[^()]*\)", "", text)
    return re.sub(r"\.\.$", ".", text.replace(_NOTHING, "?"))


def _read(folder: Path) -> tuple[Signature, ...]:
    return tuple(
        _signature(path.stem, name, entry)
        for path in sorted(folder.glob("*.toml"))
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
    )


def _signature(family: str, name: str, entry: Mapping[str, str]) -> Signature:
    return Signature(
        name=f"{family}/{name}",
        level=entry["level"],  # type: ignore[arg-type]  # a test reads each
        pattern=re.compile(entry["pattern"]),
        wording=re.compile(entry["wording"]) if "wording" in entry else None,
        cause=entry["cause"],
        fix=entry["fix"],
        source=entry["source"],
    )


SIGNATURES: Iterable[Signature] = _read(FOLDER)
"""In the order of the families' names, and of a family's file."""

_CAUSES = [one for one in SIGNATURES if one.level != "consequence"]
_PROGRAMS = [one for one in _CAUSES if one.name.startswith("program/")]
_CONSEQUENCES = [one for one in SIGNATURES if one.level == "consequence"]


def recognised(text: str) -> tuple[Signature, re.Match[str], bool] | None:
    """What of the text is known first, and whether by its very words.

    Those of one signature count more than a wording of another, and either more than what follows
    from a cause.
    """
    causes = _PROGRAMS if _NAMES.search(text) else _CAUSES
    for signature in causes:
        if found := signature.pattern.search(text):
            return signature, found, True
    for signature in causes:
        if signature.wording and (found := signature.wording.search(text)):
            return signature, found, False
    for signature in _CONSEQUENCES:
        if found := signature.pattern.search(text):
            return signature, found, True
    return None
