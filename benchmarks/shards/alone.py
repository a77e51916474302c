"""What a job is held against: the library alone, in as many processes as there are cores.

The processes are started, and their input is loaded where that is not the task, before the clock
runs; so what is left is the work.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import cores
from benchmarks.shards import table

BATCH_BYTES = 2**20
"""Of text in one call of the tokenizer."""


@contextmanager
def pool(
    pieces: int, prepare: Callable[..., None], *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """A process for each core, but no more than there are pieces of work, each prepared."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(cores(), pieces), context, prepare, arguments) as executor:
        list(executor.map(time.sleep, [0.2] * cores()))  # every process is there
        yield executor


def seconds(
    executor: ProcessPoolExecutor, work: Callable[[Any], Any], pieces: Sequence[Any]
) -> float:
    """For all pieces, shared out one by one."""
    began = time.perf_counter()
    list(executor.map(work, pieces))
    return time.perf_counter() - began


class _Loaded:
    """What a process of the pool has prepared."""

    tokenizer: Any
    texts: list[list[str]]


def prepare_tokenizer(tokenizer: str, files: Sequence[str]) -> None:
    """Load the tokenizer, and the texts of all files in batches of some MiB."""
    import json

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    _Loaded.tokenizer = Tokenizer.from_file(tokenizer)
    _Loaded.texts = []
    size = BATCH_BYTES
    for file in files:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                if size >= BATCH_BYTES:
                    _Loaded.texts.append([])
                    size = 0
                _Loaded.texts[-1].append(json.loads(line)["text"])
                size += len(_Loaded.texts[-1][-1])


def batches() -> int:
    """How many batches of texts a process has; every process has the same."""
    return len(_Loaded.texts)


def tokenise(number: int) -> int:
    """Tokens in a batch of texts. The fast call: it computes no offsets into the text."""
    encodings = _Loaded.tokenizer.encode_batch_fast(_Loaded.texts[number], add_special_tokens=False)
    return sum(len(encoding.ids) for encoding in encodings)


def prepare_tables() -> None:
    """Import pyarrow."""
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401


def convert(path: str, folder: str, to: str) -> int:
    """Rows of one CSV or Parquet file, parsed and written batch by batch as ``table.FORMATS`` say.

    A thread more in each process gains nothing: there is a process for each core.
    """
    import pyarrow as pa
    import pyarrow.parquet

    rows, schema = 0, _schema()
    opened = pa.ipc.new_file if to == "Arrow IPC" else pa.parquet.ParquetWriter
    with (Path(folder) / f"{Path(path).name}.{to}").open("wb") as file:
        with opened(file, schema) as writer:
            for batch in _batches(path):
                writer.write_batch(batch)
                rows += len(batch)
        file.flush()
        os.fsync(file.fileno())
    return rows


def _schema() -> Any:
    import pyarrow as pa

    names = [(name, pa.string()) for name in (table.KEY, *table.CATEGORIES)]
    numbers = [(name, pa.float64()) for name in (*table.NUMBERS, table.LABEL)]
    return pa.schema(names + numbers)


def _batches(path: str) -> Any:
    from pyarrow import csv, parquet

    schema = _schema()
    if path.endswith(".csv"):
        types = csv.ConvertOptions(column_types=schema, include_columns=schema.names)
        return csv.open_csv(path, csv.ReadOptions(use_threads=False), convert_options=types)
    file = parquet.ParquetFile(path)
    batches = file.iter_batches(columns=schema.names, use_threads=False)
    return (batch.cast(schema) for batch in batches)
