"""Upload the laptop's corpus: the source of the Python standard library of this machine.

python -m pipelines.corpus --recipe recipes/laptop.yaml

Some 30 MB of real text that every machine has. It becomes gzipped JSON Lines of {"key", "text"}
under the recipe's ``data.input``, the form that the shard step reads.
"""

import gzip
import hashlib
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from errors import DataError
from pipelines.account import resolve
from pipelines.cli import RecipeOption, SetOption, console, run
from pipelines.recipe import load
from pipelines.service import client, service_errors
from pipelines.storage import ensure_bucket, sync

PARTS = 16


def read_sources(folder: Path) -> Iterator[tuple[str, str]]:
    """(path inside the folder, text) of every Python file, sorted by path.

    Installed packages are left out, and so are the few files that are not UTF-8: those exist to
    test the parser.

    Raises:
        DataError: the folder holds no Python source.
    """
    found = False
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if "site-packages" in relative.parts:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = True
        yield relative.as_posix(), text
    if not found:
        raise DataError(
            f"{folder}: holds no Python source; this Python was installed without its library's "
            "source: use another one, or upload data of your own"
        )


def pack(records: Iterator[tuple[str, str]]) -> dict[str, bytes]:
    """``part-00.jsonl.gz`` … → content; a record's part follows from its key alone."""
    parts: list[list[str]] = [[] for _ in range(PARTS)]
    for key, text in records:
        part = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) % PARTS
        parts[part].append(json.dumps({"key": key, "text": text}) + "\n")
    # mtime=0: the same library gives the same bytes, so a second upload finds nothing to do.
    return {
        f"part-{index:02d}.jsonl.gz": gzip.compress("".join(lines).encode(), 6, mtime=0)
        for index, lines in enumerate(parts)
    }


def main(recipe: RecipeOption, overrides: SetOption = ()) -> None:
    """Upload the source of this machine's Python standard library as the recipe's raw data."""
    loaded = load(recipe, overrides)
    account = resolve(loaded.aws)
    where = urlsplit(loaded.data.input)
    files = pack(read_sources(Path(sysconfig.get_paths()["stdlib"])))
    s3 = client("s3", account.region)
    with service_errors("uploading the corpus"):
        ensure_bucket(s3, where.netloc, account.region)
        uploaded = sync(s3, where.netloc, where.path.strip("/"), files, kms_key=loaded.aws.kms_key)
    size = sum(map(len, files.values()))
    console.print(
        f"corpus {loaded.data.input}: {len(files)} objects, {size / 1e6:.1f} MB gzipped, "
        + (f"{uploaded / 1e6:.1f} MB uploaded" if uploaded else "unchanged")
    )


if __name__ == "__main__":
    run(main)
