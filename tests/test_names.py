"""A name is understood without its file: few are one participle, preposition or pronoun."""

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.test_rooms import CHECKOUT, modules

pytestmark = pytest.mark.long

WORDS = frozenset(
    """told said asked found given kept made done known seen wanted meant held heard spoken named
    called drawn written left shown offered carried taken chosen moved sent ended begun laid met
    judged ahead beside alike again anew thus here apart within beyond of at over under looks look
    say tell each one whole mine own ours theirs there where why what who whose lately besides
    already""".split()
)
NOUNS = {"seed", "embed", "speed", "need", "feed", "exceed", "proceed"}
MOST = {"function": 0.01, "class": 0.01, "variable": 0.02}
"""Largest share of bare names: fields of JSON, options of commands, words of AWS."""


def is_bare(name: str) -> bool:
    """Return whether a name says nothing without its file."""
    if sum(letter.isupper() for letter in name) > 1 and not name.isupper():
        return False  # several words in CamelCase
    word = name.strip("_").lower()
    return word in WORDS or (
        len(word) > 4 and word.isalpha() and word.endswith("ed") and word not in NOUNS
    )


def names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Iterate over (kind, name) of all that a module defines or binds."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield "function", node.name
            case ast.ClassDef():
                yield "class", node.name
            case ast.arg():
                yield "variable", node.arg
            case ast.Name(ctx=ast.Store()):
                yield "variable", node.id


def test_bare_names_are_recognized():
    told = "class Told:\n def found(self, one): said = [each for each in one]\n"
    source = told + "class StepFailed: speed = 1"
    bare = [name for _, name in names(ast.parse(source)) if is_bare(name)]
    assert sorted(bare) == ["Told", "each", "found", "one", "said"]


def test_few_names_are_bare():
    count: Counter[str] = Counter()
    bare: dict[str, list[str]] = {kind: [] for kind in MOST}
    for path in modules().values():
        for kind, name in names(ast.parse(path.read_text(encoding="utf-8"))):
            count[kind] += 1
            if is_bare(name):
                bare[kind].append(f"{path.relative_to(CHECKOUT)}: {name}")
    assert not {kind: all_ for kind, all_ in bare.items() if len(all_) > MOST[kind] * count[kind]}
