"""Signatures and docstrings of the functions in this Python's standard library.

A record is a function: ``prompt`` is its signature, ``completion`` its docstring, ``text`` both
together. ``key`` is the file, so that all functions of a file are in the same split.
"""

import ast
import hashlib
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipelines.corpora import Corpus
from pipelines.corpora.stdlib import pack_records, read_sources

SHORTEST = 20  # minimum characters of a docstring


def build() -> Corpus:
    """Build gzipped JSON Lines files of signatures and docstrings.

    Raises:
        DataError: this Python has no source.
    """
    sources = read_sources(Path(sysconfig.get_paths()["stdlib"]))
    return Corpus(
        pack_records(iter_records(sources)), "docstrings of the Python standard library, gzipped"
    )


def iter_records(sources: Iterable[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Yield a record for each function that has a docstring; skip repeated ones."""
    digests: set[bytes] = set()
    for key, text in sources:
        for signature, docstring in _iter_functions(text):
            name = hashlib.sha256(f"{signature}\0{docstring}".encode()).digest()
            if name not in digests:
                digests.add(name)
                completion = f'    """{docstring}"""\n'
                yield {
                    "key": key,
                    "prompt": signature,
                    "completion": completion,
                    "text": signature + completion,
                }


def _iter_functions(text: str) -> Iterator[tuple[str, str]]:
    """Yield (signature, docstring) of a source's functions; nothing if it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about escapes that older Pythons allowed
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            if len(docstring) >= SHORTEST:
                yield f"def {node.name}({ast.unparse(node.args)}):\n", docstring
