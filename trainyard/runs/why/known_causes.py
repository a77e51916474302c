"""Known texts of causes of failure, each with its source: ``signatures/*.toml``.

One file is one family; a new cause is a new entry. ``pattern`` matches the words of a program or
AWS, ``wording`` those of people and other versions: a cause found by it is never more than likely.
``cause`` and ``fix`` may name the groups of both in braces. Brackets around a group that found
nothing are removed; in JSON it becomes ``*``.
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
"""Texts before names that a program gave, which may be those of any cause."""

FOLDER = Path(__file__).with_name("signatures")
Level = Literal["service", "cause", "hint", "likely", "consequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A known text."""

    name: str
    """Name, such as ``family/name``."""

    level: Level
    """Meaning of the text. service: AWS's own message about the job. cause: the program that prints
    it has failed by it; both may be certain. hint: the program that raises it has failed by it, but
    its meaning is only likely. likely: it usually means this, or follows from another rank.
    consequence: another rank, or a called program, has failed before; it counts if nothing else was
    found."""

    pattern: re.Pattern[str]
    wording: re.Pattern[str] | None = None
    cause: str
    """Sentence that states the cause."""

    fix: str
    source: str
    """Source of the text: a page, a thread, or the program that prints it."""

    def explain(self, match: re.Match[str]) -> tuple[str, str]:
        """Return cause and fix, with the groups of the match filled in."""
        groups = match.groupdict()
        return _fill_groups(self.cause, groups), _fill_groups(self.fix, groups)


def _fill_groups(sentence: str, groups: Mapping[str, str | None]) -> str:
    """Return the sentence with the groups filled in. Groups side by side are alternatives."""

    def replace_names(names: re.Match[str]) -> str:
        texts = (groups.get(name) or "" for name in re.findall(r"\w+", names[0]))
        return "".join(texts).strip() or _NOTHING

    text = _GROUPS.sub(replace_names, sentence).replace("{{", "{").replace("}}", "}")
    text = text.replace(f'"{_NOTHING}"', '"*"')
    text = re.sub(rf" \((?:on )?{_NOTHING}[^()]*\)", "", text)
    return re.sub(r"\.\.$", ".", text.replace(_NOTHING, "?"))


def _read(folder: Path) -> tuple[Signature, ...]:
    return tuple(
        Signature(
            name=f"{path.stem}/{name}",
            level=entry["level"],  # a test checks each
            pattern=re.compile(entry["pattern"]),
            wording=re.compile(entry["wording"]) if "wording" in entry else None,
            cause=entry["cause"],
            fix=entry["fix"],
            source=entry["source"],
        )
        for path in sorted(folder.glob("*.toml"))
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
    )


SIGNATURES: Iterable[Signature] = _read(FOLDER)
"""Signatures in the order of the families' names, and of the entries in a family's file."""

_CAUSES = [signature for signature in SIGNATURES if signature.level != "consequence"]
_PROGRAMS = [signature for signature in _CAUSES if signature.name.startswith("program/")]
_CONSEQUENCES = [signature for signature in SIGNATURES if signature.level == "consequence"]


def find_signature(text: str) -> tuple[Signature, re.Match[str], bool] | None:
    """Return the first known signature in the text, and whether its exact words matched.

    The pattern of one signature counts more than the wording of another, and either more than a
    consequence of a cause.
    """
    causes = _PROGRAMS if _NAMES.search(text) else _CAUSES
    for signature in causes:
        if match := signature.pattern.search(text):
            return signature, match, True
    for signature in causes:
        if signature.wording and (match := signature.wording.search(text)):
            return signature, match, False
    for signature in _CONSEQUENCES:
        if match := signature.pattern.search(text):
            return signature, match, True
    return None
