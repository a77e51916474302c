"""Mount a folder as a file system that is as slow as one says, for the time of a measurement.

It is a file system in user space (FUSE): the kernel asks (``/dev/fuse``, linux/fuse.h, version
7.31), and threads of a process of its own answer late. So what reads by ``read``, by ``mmap`` or by
any library waits. The protocol is spoken here because the libraries for it (mfusepy, fusepy,
pyfuse3) are bindings of libfuse, a package of the system that the locks cannot bring; what a folder
that is only read needs of it is a dozen requests. The process ends, and unmounts, when whoever
started it ends. Needs ``/dev/fuse`` and root.
"""

import errno
import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import typer

from benchmarks.harness import CHECKOUT
from trainyard.emulator.containers.container_entry import LIBC, mount

DEVICE = "/dev/fuse"
ROOT = 1
LATE = 64
"""Requests that are waited for at once."""

BUFFER = 1 << 18
"""Bytes of a request: the kernel wants room for a write, too, which it never sends here."""

WINDOW = 1 << 18
"""Bytes by which a request may lie beside where the stream has come, and still be a part of it: the
kernel reads 128 KiB ahead, and asks out of order."""

FOREVER = 1 << 30
ASYNC_READ, MAX_PAGES = 1, 1 << 22  # of FUSE_INIT
KEEP_CACHE = 2  # FOPEN_KEEP_CACHE
GONE = (errno.ENOENT, errno.ENODEV, errno.ECONNABORTED)
REQUEST, ANSWER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
ANY_INODE, FOLDER, FILE = 0xFFFFFFFF, 4, 8  # FUSE_UNKNOWN_INO; DT_DIR, DT_REG
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH = 1, 2, 3, 14, 15, 17, 18, 25
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, FORGET_SEVERAL = 26, 27, 28, 29, 36, 42

READ_ONLY = 1  # linux/mount.h, MS_RDONLY
FORCE, DETACH = 1, 2  # MNT_...


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """Latency and rate of a file system."""

    first_byte: float
    """Seconds until a read answers that does not follow the one before it."""

    stream: float
    """Bytes a second of one open file."""

    total: float
    """Bytes a second of the whole mount."""

    kept: bool = True
    """Whether what was read stays in the kernel's cache when the file is opened again."""


@dataclass(slots=True)
class Counts:
    """Requests so far."""

    opened: int = 0
    jumps: int = 0
    """Reads that did not follow the one before them."""

    read: int = 0
    """Bytes."""


@dataclass(slots=True)
class _Stream:
    descriptor: int
    end: int = -WINDOW - 1
    free: float = 0.0
    """When it can give the next byte; of ``time.monotonic``."""


@dataclass(slots=True)
class Server:
    """Answers for one mount, until the mount is gone."""

    folder: str
    slow: Slow
    device: int
    counts: Counts = field(default_factory=Counts)
    _paths: list[str] = field(default_factory=lambda: ["", ""])
    """Number that the kernel knows a file by → its path; the folder itself is 1."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _listings: dict[int, list[os.DirEntry]] = field(default_factory=dict)
    _streams: dict[int, _Stream] = field(default_factory=dict)
    _free: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Answer until the mount is gone."""
        self._paths[ROOT] = self.folder
        with ThreadPoolExecutor(LATE, "slow") as pool:
            while True:
                try:
                    request = os.read(self.device, BUFFER)
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                        continue  # it was taken back
                    if error.errno in (errno.ENODEV, errno.ECONNABORTED):
                        return
                    raise
                _, code, unique, node, *_ = REQUEST.unpack_from(request)
                if code not in (FORGET, FORGET_SEVERAL, INTERRUPT):
                    how = self._kinds().get(code)
                    pool.submit(self._answer, unique, node, how, request[REQUEST.size :])

    def _kinds(self) -> dict[int, Callable[[int, bytes], bytes]]:
        return {
            INIT: self._begin,
            LOOKUP: self._look_up,
            GETATTR: lambda node, _: struct.pack("<QII", FOREVER, 0, 0) + self._attributes(node),
            OPEN: self._open,
            OPENDIR: self._open_folder,
            READDIR: self._list,
            STATFS: self._capacity,
            RELEASE: self._release,
            RELEASEDIR: self._release_folder,
            FLUSH: lambda node, _: b"",
            READ: self._read,
        }

    def _answer(self, unique: int, node: int, how: Callable | None, given: bytes) -> None:
        number, content = errno.ENOSYS, b""
        if how is not None:
            try:
                number, content = 0, how(node, given)
            except OSError as error:
                number = error.errno or errno.EIO
        try:
            os.write(
                self.device, ANSWER.pack(ANSWER.size + len(content), -number, unique) + content
            )
        except OSError as error:
            if error.errno not in GONE:  # else nobody waits for it any more
                raise

    def _begin(self, node: int, given: bytes) -> bytes:
        _, _, ahead, flags = struct.unpack_from("<4I", given)
        wanted = flags & (ASYNC_READ | MAX_PAGES)
        return struct.pack(
            "<IIIIHHIIHHI7I", 7, 31, ahead, wanted, LATE, LATE, 1 << 17, 1, 256, 0, 0, *[0] * 7
        )

    def _look_up(self, node: int, given: bytes) -> bytes:
        path = os.path.join(self._paths[node], os.fsdecode(given.rstrip(b"\0")))
        os.stat(path)  # a link is what it leads to
        with self._lock:
            number = self._numbers.setdefault(path, len(self._paths))
            if number == len(self._paths):
                self._paths.append(path)
        head = struct.pack("<4Q2I", number, 0, FOREVER, FOREVER, 0, 0)
        return head + self._attributes(number)

    def _attributes(self, node: int) -> bytes:
        found = os.stat(self._paths[node])
        blocks = -(-found.st_size // 512)
        return ATTRIBUTES.pack(
            node, found.st_size, blocks, *[int(found.st_mtime)] * 3, *[0] * 3,
            found.st_mode & ~0o222, 1, 0, 0, 0, 1 << 12, 0,
        )  # fmt: skip

    def _open(self, node: int, given: bytes) -> bytes:
        descriptor = os.open(self._paths[node], os.O_RDONLY)
        with self._lock:
            self._streams[descriptor] = _Stream(descriptor)
            self.counts.opened += 1
        return struct.pack("<QII", descriptor, KEEP_CACHE if self.slow.kept else 0, 0)

    def _release(self, node: int, given: bytes) -> bytes:
        (descriptor,) = struct.unpack_from("<Q", given)
        with self._lock:
            self._streams.pop(descriptor)
        os.close(descriptor)
        return b""

    def _open_folder(self, node: int, given: bytes) -> bytes:
        with os.scandir(self._paths[node]) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        with self._lock:
            handle = max(self._listings, default=0) + 1
            self._listings[handle] = found
        return struct.pack("<QII", handle, 0, 0)

    def _release_folder(self, node: int, given: bytes) -> bytes:
        with self._lock:
            self._listings.pop(struct.unpack_from("<Q", given)[0])
        return b""

    def _list(self, node: int, given: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", given)
        found = b""
        for number, each in enumerate(self._listings[handle][offset:], offset + 1):
            name, kind = os.fsencode(each.name), FOLDER if each.is_dir() else FILE
            entry = struct.pack("<QQII", ANY_INODE, number, len(name), kind) + name
            entry += b"\0" * (-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found

    def _capacity(self, node: int, given: bytes) -> bytes:
        of = os.statvfs(self.folder)
        counts = of.f_blocks, of.f_bfree, of.f_bavail, of.f_files, of.f_ffree
        return struct.pack("<5Q10I", *counts, of.f_bsize, of.f_namemax, of.f_frsize, *[0] * 7)

    def _read(self, node: int, given: bytes) -> bytes:
        descriptor, offset, size = struct.unpack_from("<QQI", given)
        content = os.pread(descriptor, size, offset)
        with self._lock:
            stream, now, slow = self._streams[descriptor], time.monotonic(), self.slow
            jumps = abs(offset - stream.end) > WINDOW
            stream.end = offset + size if jumps else max(stream.end, offset + size)
            self.counts.jumps += jumps
            self.counts.read += len(content)
            begin = max(now, stream.free) + (slow.first_byte if jumps else 0.0)
            stream.free = begin + len(content) / slow.stream
            self._free = max(now, self._free) + len(content) / slow.total
            ready = max(stream.free, self._free)
        time.sleep(max(0.0, ready - time.monotonic()))
        return content


def mounted_device(target: str) -> int:
    """Mount a file system whose requests come from the returned descriptor."""
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    owner = f"user_id={os.getuid()},group_id={os.getgid()}"
    options = f"fd={device},rootmode=40000,{owner},allow_other,default_permissions"
    mount("slow", target, READ_ONLY, "fuse.slow", options)
    return device


def refuse(device: Path = Path(DEVICE), user: int | None = None) -> None:
    """Say what is missing for a mount, and what to do about it.

    Raises:
        typer.BadParameter: there is no ``/dev/fuse``, or this process is not root's.
    """
    if not device.exists():
        raise typer.BadParameter(
            f"{device}: is missing, and a slow file system is mounted by it; load the kernel's "
            f"module (modprobe fuse), or give it to the container (docker run --device {device} "
            "--cap-add SYS_ADMIN)"
        )
    if (os.geteuid() if user is None else user) != 0:
        raise typer.BadParameter(
            "only root may mount a file system; run it by sudo, or as root in a container "
            "(docker run --device /dev/fuse --cap-add SYS_ADMIN)"
        )


@contextmanager
def mounted(folder: Path, at: Path, slow: Slow) -> Iterator[dict[str, int]]:
    """Inside, ``at`` (an empty folder) has the files of ``folder``, and is as slow as told.

    What was asked of it stands in the dict afterwards: ``opened``, ``jumps``, ``read`` (bytes).

    Raises:
        OSError: it cannot be mounted; says why.
    """
    told: dict[str, int] = {}
    command = [sys.executable, "-m", "benchmarks.throttled.mount"]
    command += [str(folder), str(at), json.dumps(asdict(slow))]
    # In a session of its own Ctrl-C does not reach it: it ends when its input does, whatever
    # ended this process.
    server = subprocess.Popen(
        command, cwd=CHECKOUT, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdin is not None and server.stdout is not None
    try:
        if server.stdout.readline() != "mounted\n":
            raise OSError(f"{at}: cannot be mounted: {server.communicate()[1].strip()}")
        yield told
    finally:
        try:
            out, _ = server.communicate(timeout=60)
            told.update(json.loads(out or "{}"))
        finally:
            server.kill()
            server.wait()
            LIBC.umount2(bytes(at), DETACH)  # refused when the process has done it


def _serve(folder: Path, at: Path, slow: Slow) -> Server:
    """Mount, say so, and answer until the input ends."""
    try:
        server = Server(str(folder), slow, mounted_device(str(at)))
    except OSError as error:
        raise SystemExit(str(error.strerror)) from None
    try:
        thread = threading.Thread(target=server.run, name="slow", daemon=True)
        thread.start()
        print("mounted", flush=True)
        sys.stdin.read()
    finally:
        # By force: a request that nobody answers any more fails, and does not hang its reader.
        LIBC.umount2(bytes(at), FORCE | DETACH)
    thread.join(30)
    return server


if __name__ == "__main__":
    served = _serve(Path(sys.argv[1]), Path(sys.argv[2]), Slow(**json.loads(sys.argv[3])))
    print(json.dumps(asdict(served.counts)), flush=True)
