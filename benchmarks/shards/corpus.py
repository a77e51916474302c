"""Write what is measured on: random tokens, the Python standard library as text, a random table."""

import json
import sysconfig
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.shards.contenders import WIDTH

VOCABULARY = 50_257
"""Token numbers of the corpus are below this, as GPT-2's are: uint16."""


def write_tokens(path: Path, samples: int) -> None:
    """A flat file of uniformly random tokens, uint16 of shape (samples, 2049)."""
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, samples, 4096):
            shape = (min(4096, samples - start), WIDTH)
            file.write(random.integers(0, VOCABULARY, shape, dtype=np.uint16))


def standard_library(limit: int | None = None) -> list[str]:
    """The source files of this Python's standard library; ``limit``: so many bytes of them."""
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


def documents(texts: list[str]) -> Iterator[str]:
    """The texts again and again, each with a number, so that no two are equal."""
    for number, text in enumerate(cycle(texts)):
        yield f"# {number}\n{text}"


def write_json_lines(folder: Path, texts: list[str], size: int, file_bytes: int) -> int:
    """``size`` bytes of text, as JSON Lines of ``{"text": …}`` in files of ``file_bytes`` of text.

    Returns:
        Bytes of text, UTF-8.
    """
    folder.mkdir(parents=True)
    source, total = documents(texts), 0
    for number in range(max(1, round(size / file_bytes))):
        with (folder / f"{number:05d}.jsonl").open("w") as file:
            here = 0
            while here < min(file_bytes, size):
                text = next(source)
                here += len(text.encode())
                file.write(json.dumps({"text": text}) + "\n")
        total += here
    return total


KEY, LABEL = "date", "arr_delay"
CATEGORIES = (
    "month", "day_of_week", "hour", "carrier", "origin", "dest", "plane_manufacturer",
    "plane_model", "plane_engine",
)  # fmt: skip
NUMBERS = (
    "departure_minute", "arrival_minute", "scheduled_minutes", "departures_in_hour", "distance",
    "plane_seats", "plane_age", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust",
    "precip", "pressure", "visib",
)  # fmt: skip
MEASURED = NUMBERS.index("temp")
"""From here on numbers have two decimals; those before are whole."""


def write_table(folder: Path, rows: int, files: int) -> None:
    """Write random rows with the columns of recipes/flights.yaml as CSV files of even size."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(files):
        pa.csv.write_csv(_rows(random, rows // files), folder / f"{number:03d}.csv")


def _rows(random: np.random.Generator, count: int) -> pa.Table:
    days = np.datetime64("2013-01-01") + random.integers(0, 365, count)
    columns = {KEY: pa.array(days.astype(str))}
    for number, name in enumerate(CATEGORIES):
        values = 10 + 4 * number**2
        names = np.array([f"{name[:3].upper()}{value}" for value in range(values)])
        columns[name] = pa.array(names[random.integers(0, values, count)])
    for number, name in enumerate(NUMBERS):
        if number < MEASURED:
            columns[name] = pa.array(random.integers(0, 3000, count))
        else:
            columns[name] = pa.array(random.normal(50, 20, count).round(2))
    columns[LABEL] = pa.array(random.normal(7, 40, count).round(0))
    return pa.table(columns)
