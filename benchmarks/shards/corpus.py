"""Write the corpora to measure on: random tokens, and the Python standard library as text."""

import json
import sysconfig
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks.shards.contenders import WIDTH

VOCABULARY = 50_257
"""Token numbers of the corpus are below this, as GPT-2's are: uint16."""


def write_tokens(path: Path, samples: int) -> None:
    """Write a flat file of uniformly random tokens, uint16 of shape (samples, 2049)."""
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, samples, 4096):
            shape = (min(4096, samples - start), WIDTH)
            file.write(random.integers(0, VOCABULARY, shape, dtype=np.uint16))


def read_standard_library(limit: int | None = None) -> list[str]:
    """Return the source files of Python's standard library, up to ``limit`` characters."""
    texts, size = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            texts.append(path.read_bytes().decode())
        except UnicodeDecodeError:  # a few of its tests are in other encodings on purpose
            continue
        size += len(texts[-1])
        if limit and size > limit:
            break
    return texts


def iter_documents(texts: list[str]) -> Iterator[str]:
    """Yield the texts again and again, each with a number, so that no two are equal."""
    for number, text in enumerate(cycle(texts)):
        yield f"# {number}\n{text}"


def write_json_lines(folder: Path, texts: list[str], size: int, file_bytes: int) -> int:
    """Write ``size`` bytes of text as JSON Lines of ``{"text": …}``, in files of ``file_bytes``.

    Return the bytes of text written, in UTF-8.
    """
    folder.mkdir(parents=True)
    source, total = iter_documents(texts), 0
    for number in range(max(1, round(size / file_bytes))):
        with (folder / f"{number:05d}.jsonl").open("w") as file:
            here = 0
            while here < min(file_bytes, size):
                text = next(source)
                here += len(text.encode())
                file.write(json.dumps({"text": text}) + "\n")
        total += here
    return total
