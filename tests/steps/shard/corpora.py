"""Small corpora for several instances: what they hold is a function of a seed alone."""

import csv
import gzip
import io
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import parquet

from tests.steps.shard.conftest import ARGUMENTS, as_csv, lines
from tests.training.workloads.image.pictures import CONFIG, json_lines, picture

IMAGES = [
    "--workload", "image", "--workload_config", json.dumps(CONFIG), "--validation_share", "0.2",
    "--test_share", "0.2", "--shard_mb", "0.01", "--processes", "1",
]  # fmt: skip
BAD = ["--max_bad_share", "0.2"]


@dataclass(frozen=True)
class Case:
    """Raw files, and the arguments of the job."""

    files: Mapping[str, bytes]
    arguments: list[str]


def texts(seed: int = 0, files: int = 9) -> dict[str, bytes]:
    """Documents in three folders; some repeatedly, in one file and in several; some lines bad."""
    source = random.Random(seed)
    every = [
        {"key": f"page-{n}", "text": f"page {n} {'of a text ' * source.randint(1, 9)}"}
        for n in range(40 * files)
    ]
    out = {}
    for number in range(files):
        own = every[40 * number : 40 * number + 40]
        records = [*own, *source.sample(every, 12), *source.sample(own, 3)]
        folder = ("web", "books", "code/deep")[number % 3]
        if number % 4 == 3:
            out[f"{folder}/{number}.csv"] = as_csv(records)
            continue
        content = lines(records)
        if number % 2:
            content = content + b'{"key": "cut off", "te\n' + lines(records[:1])
        name = f"{folder}/{number}.jsonl"
        out |= {f"{name}.gz": gzip.compress(content, mtime=0)} if number == 5 else {name: content}
    return out


def images(seed: int = 0) -> dict[str, bytes]:
    """Images in folders: ``second`` has a copy of ``first``, ``third`` some of it; two broken."""
    source = random.Random(seed)
    first = {f"{label}/{n:03}.png": picture(n) for n in range(24) for label in ("x", "y") if n % 2}
    first["x/broken.png"] = first["x/001.png"][:-40]
    out = {f"first/{name}": content for name, content in first.items()}
    out |= {f"second/{name}": content for name, content in first.items()}
    out["second/more.jsonl"] = json_lines({f"x/{n}": picture(n) for n in range(1, 24, 2)})
    some = source.sample(sorted(first), 9)
    out |= {f"third/{name}": first[name] for name in some}
    return out | {f"third/x/9{n:02}.png": picture(100 + n) for n in range(11)}


def messy() -> dict[str, bytes]:
    """What exports look like: byte order marks, CRLF, quoted line ends, NUL, nulls, dictionaries,
    copies, and 2,000 files of one record each.
    """
    records = [{"key": f"row {n}", "text": f"ein Text für {n}\x00, “{n}”\u2028"} for n in range(60)]
    ends = [{"key": f"end {n}", "text": f'first {n}\r\nsecond, "quoted"\n'} for n in range(40)]
    nulls = [{"key": None if n % 5 == 0 else f"null {n}", "text": f"null {n}"} for n in range(20)]
    nulls += [{"key": f"without text {n}", "text": None} for n in range(5)]
    quoted = io.StringIO(newline="")
    writer = csv.DictWriter(quoted, ["key", "text"], quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(ends)
    table = pa.table({name: [record[name] for record in ends + nulls] for name in ("key", "text")})
    encoded = pa.table([column.dictionary_encode() for column in table.columns], table.column_names)
    sink = io.BytesIO()
    parquet.write_table(encoded, sink)
    raw_nul = b'{"key": "raw", "text": "a\x00b"}\r\n'
    out = {
        "export/a.jsonl": b"\xef\xbb\xbf" + lines(records).replace(b"\n", b"\r\n") + raw_nul,
        "export/b.csv": b"\xef\xbb\xbf" + quoted.getvalue().encode(),
        "export/c.jsonl.gz": gzip.compress(lines(nulls) + b'["no", "object"]\n{}\n', mtime=0),
        "export/d.parquet": sink.getvalue(),
        "more/copy of a.jsonl": lines(records),
        "more/copy of b.csv": quoted.getvalue().encode(),
    }
    return out | {
        f"tiny/{n:04}.jsonl": lines([{"key": f"tiny {n % 1_900}", "text": f"page {n % 1_900}"}])
        for n in range(2_000)
    }


CASES = {
    "texts": Case(texts(), [*ARGUMENTS, *BAD]),
    "by folder": Case(texts(), [*ARGUMENTS, *BAD, "--by_folder"]),
    "inputs": Case(texts(1), [*ARGUMENTS, *BAD, "--inputs", "books", "code", "web"]),
    "equal records stay": Case(texts(), [*ARGUMENTS, *BAD, "--unique"]),
    "by folder, equal records stay": Case(texts(), [*ARGUMENTS, *BAD, "--unique", "--by_folder"]),
    "messy": Case(messy(), [*ARGUMENTS, *BAD]),
    "images": Case(images(), [*IMAGES, *BAD]),
    "images, equal ones stay": Case(
        images(), [*IMAGES, *BAD, "--unique", "--inputs", "first", "second", "third"]
    ),
}
