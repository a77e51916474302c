"""The process that writes a rank's checkpoint files. It imports the standard library only.

    python -m training.checkpoint.writer_process <image's descriptor> <its bytes> <the rank's pid>

It reads one path per line (JSON), writes the image (the rank's file in memory) there together with
its hashes, and responds with lines of JSON: ``{"written": 67108864}`` during the work, and finally
``{"sha256": "…"}`` or ``{"error": "…"}``. It ends when its rank ends, even if that was killed, and
leaves no partial file under a final name. It is started with SIGTERM blocked, so that a file that
was begun is completed while the rank ends.
"""

import contextlib
import hashlib
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

from training.checkpoint.block_hashes import BLOCK, build_hashes_path, hash_blocks
from trainyard.common import atomic_file

AT_ONCE = 256 * BLOCK  # 4 MiB: bytes that are in memory at a time
REPORT_EVERY = 16  # number of these between two progress lines
POLL_SECONDS = 1.0  # seconds between two checks of whether the rank is alive


class OrphanedError(Exception):  # noqa: N818
    """The rank that started this process is gone."""


def write_image(path: Path, image: int, size: int, rank: int) -> str:
    """Write the image and its block hashes; return the hash of these hashes.

    Raises:
        OSError: the file cannot be written.
        OrphanedError: ``rank`` is no longer this process's parent.
    """
    content, hashes = bytearray(AT_ONCE), bytearray()
    with atomic_file.Draft(path, size=size) as file:
        for number, begin in enumerate(range(0, size, AT_ONCE)):
            part = memoryview(content)[: min(AT_ONCE, size - begin)]
            if os.preadv(image, [part], begin) != len(part):
                raise OSError(f"the image ends before byte {begin + len(part)}")
            hashes += hash_blocks(part)
            file.write(part)
            if number % REPORT_EVERY == REPORT_EVERY - 1:
                send_message(written=begin + len(part))
            # Otherwise an orphaned process would complete a file that no marker will name.
            if os.getppid() != rank:
                raise OrphanedError
    atomic_file.write_file(build_hashes_path(path), bytes(hashes))
    return hashlib.sha256(hashes).hexdigest()


def send_message(**fields: Any) -> None:
    """Print one line of JSON for the rank."""
    print(json.dumps(fields), flush=True)


def read_paths(rank: int) -> Any:
    """Yield the paths that the rank sends, until it is gone or closes the pipe."""
    while os.getppid() == rank:
        if select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            yield json.loads(line)


def main() -> None:
    image, size, rank = map(int, sys.argv[1:])
    with contextlib.suppress(OrphanedError, BrokenPipeError, KeyboardInterrupt):
        for path in read_paths(rank):
            try:
                send_message(sha256=write_image(Path(path), image, size, rank))
            except OSError as error:
                # The rank no longer reads, so nobody would receive an error message.
                if isinstance(error, BrokenPipeError):
                    raise
                # Contains the path, unless it is the operating system's own message.
                message = str(error)
                send_message(error=message if str(path) in message else f"{path}: {message}")


if __name__ == "__main__":
    main()
