"""The process that writes a rank's checkpoint files. It imports the standard library only.

python -m training.checkpoint.writer_process <image's descriptor> <its bytes> <the rank's pid>

It reads one path per line (JSON), writes the image there with its hashes beside it, and answers
with lines of JSON: ``{"written": 67108864}`` during the work, and finally ``{"sha256": "…"}`` or
``{"error": "…"}``. It ends with its rank, even if that was killed, and leaves no partial file under
a final name. Its rank blocks SIGTERM in it: a file that was begun is written while the rank ends.
"""

import contextlib
import hashlib
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

from training.checkpoint.tensor_table import BLOCK, digests, hashes_path
from trainyard.common import atomic_file

AT_ONCE = 256 * BLOCK  # 4 MiB: bytes in memory at a time
REPORT_EVERY = 16  # of these between two lines
POLL_SECONDS = 1.0  # seconds between two looks at whether the rank lives


class OrphanedError(Exception):  # noqa: N818
    """The rank is gone."""


def write(path: Path, image: int, size: int, rank: int) -> str:
    """Write the file and its hashes, computed on the way; return the hash of the hashes.

    Raises:
        OSError: the file cannot be written.
        Orphaned: ``rank`` is not this process's parent any more.
    """
    content, hashes = bytearray(AT_ONCE), bytearray()
    with atomic_file.Draft(path, size=size) as file:
        for number, begin in enumerate(range(0, size, AT_ONCE)):
            part = memoryview(content)[: min(AT_ONCE, size - begin)]
            if os.preadv(image, [part], begin) != len(part):
                raise OSError(f"the image ends before byte {begin + len(part)}")
            hashes += digests(part)
            file.write(part)
            if number % REPORT_EVERY == REPORT_EVERY - 1:
                send_message(written=begin + len(part))
            # Left to itself, the process would complete a file that no marker will name.
            if os.getppid() != rank:
                raise OrphanedError
    atomic_file.write(hashes_path(path), bytes(hashes))
    return hashlib.sha256(hashes).hexdigest()


def send_message(**fields: Any) -> None:
    """Print one line of JSON for the rank."""
    print(json.dumps(fields), flush=True)


def lines(rank: int) -> Any:
    """Yield the rank's lines until it is gone or sends no more."""
    while os.getppid() == rank:
        if select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            yield json.loads(line)


def main() -> None:
    image, size, rank = map(int, sys.argv[1:])
    with contextlib.suppress(OrphanedError, BrokenPipeError, KeyboardInterrupt):
        for path in lines(rank):
            try:
                send_message(sha256=write(Path(path), image, size, rank))
            except OSError as error:
                # The rank reads no more, so nobody is left to hear of an error.
                if isinstance(error, BrokenPipeError):
                    raise
                message = str(error)  # names the path, unless it is the system's own
                send_message(error=message if str(path) in message else f"{path}: {message}")


if __name__ == "__main__":
    main()
