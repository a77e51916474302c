"""Small pictures of two kinds, in the usual dataset layouts."""

import base64
import io
import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.steps.shard.readings import tar

CONFIG = {"size": 16, "depths": [1], "width": 16, "stem": "small", "crop_area": [0.3, 1.0]}
LABELS = ("dark", "light")


def picture(number: int, format_: str = "PNG", *, width: int = 24, height: int = 20) -> bytes:
    """Return noise that is dark for even numbers and light for odd ones."""
    noise = np.random.default_rng(number).integers(0, 100, (height, width, 3))
    file = io.BytesIO()
    Image.fromarray((noise + 150 * (number % 2)).astype(np.uint8)).save(file, format_)
    return file.getvalue()


def folder(count: int, format_: str = "PNG") -> dict[str, bytes]:
    """Return ``<label>/<number>.png`` → content, the layout of ImageFolder."""
    end = {"PNG": "png", "JPEG": "jpg"}[format_]
    return {f"{LABELS[n % 2]}/{n:04d}.{end}": picture(n, format_) for n in range(count)}


def records(files: Mapping[str, bytes]) -> list[dict]:
    return [{"bytes": content, "label": name.split("/")[0]} for name, content in files.items()]


def parquet(files: Mapping[str, bytes]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(records(files)), sink)
    return sink.getvalue().to_pybytes()


def json_lines(files: Mapping[str, bytes]) -> bytes:
    rows = [one | {"bytes": base64.b64encode(one["bytes"]).decode()} for one in records(files)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return an archive like WebDataset's, with members ``<number>.png`` and ``<number>.cls``."""
    members: dict[str, bytes | str] = {}
    for number, one in enumerate(records(files)):
        members |= {f"{number:04d}.png": one["bytes"], f"{number:04d}.cls": one["label"]}
    return tar(members)
