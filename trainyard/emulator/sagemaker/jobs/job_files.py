"""Open the files that a job wrote, without leaving the job's own folders.

A job may leave anything there: a link to the emulator's secrets, a pipe that nothing writes to, a
folder that becomes a link while it is read. So each component of a path is opened relative to the
folder that was opened before it, and never through a link. Links are read explicitly and resolved
as the job saw them.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

LINKS = 40  # maximum number in one path, as in Linux
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: if a pipe has replaced the file, opening it must not block.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FILE = "is a pipe, a socket, a device or a folder, not a file"
Identity = tuple[int, int]
"""Device and inode of a folder."""


class ClientFault(Exception):
    """The job's request or files are at fault. It becomes ``FailureReason: ClientError: ...``."""


class LeadsOutError(ClientFault):
    """A job's symbolic link leads out of the job's own folders."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A folder of a job.

    ``root`` is the folder on this machine that the job sees as ``job_root``; nothing outside it
    belongs to the job. ``path`` is the folder as the job sees it. ``report`` is called once with a
    sentence about each entry that is left out.
    """

    root: Path
    path: str
    job_root: str = "/opt/ml"
    report: Callable[[str], None] = field(default=lambda _: None, compare=False)
    _reported_reasons: set[str] = field(default_factory=set, compare=False)

    def iter_files(self) -> Iterator["JobFile"]:
        """Iterate over the regular files below the folder, including those behind links. There are
        none if the folder is missing.

        A link that leads out of the job's folders is included; opening it raises LeadsOutError.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield from self._iter_folder_files(self._resolve(self.path), "", ())

    def read(self, name: str, limit: int) -> bytes | None:
        """Return at most the first ``limit`` bytes of a file. Return None if it is missing or
        cannot be read.
        """
        try:
            with self.open(name) as file:
                return file.read(limit)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (LeadsOutError, OSError) as error:
            self._report_omission(name, error)
            return None

    def open(self, name: str) -> BinaryIO:
        """Open the regular file ``name`` of the folder.

        Raises:
            LeadsOutError: a link on its path leads out of the job's folders.
            OSError: there is no regular file.
        """
        parts = self._resolve(f"{self.path}/{name}")
        with self._open_folder(parts[:-1]) as folder:
            if parts and stat.S_ISREG(_read_status(parts[-1], folder).st_mode):
                descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
                if stat.S_ISREG(os.fstat(descriptor).st_mode):  # it may have been replaced
                    return os.fdopen(descriptor, "rb")
                os.close(descriptor)
        raise OSError(errno.EINVAL, _NO_FILE, f"{self.path}/{name}")

    def _iter_folder_files(
        self, parts: list[str], name: str, ancestors: tuple[Identity, ...]
    ) -> Iterator["JobFile"]:
        """Iterate over the files of the folder with the components ``parts`` below ``root``.

        ``name`` is its path relative to this folder. ``ancestors`` are the folders that contain it.
        """
        with self._open_folder(parts) as folder:
            status = os.fstat(folder)
            entries = []
            for entry in sorted(os.listdir(folder)):
                with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                    entries.append((entry, _read_status(entry, folder)))
        identity = status.st_dev, status.st_ino
        # A link to a folder that contains it would be walked forever.
        if identity in ancestors:
            raise OSError(errno.ELOOP, "links to a folder that contains it")
        for entry, status in entries:
            child = f"{name}/{entry}".lstrip("/")
            yield from self._iter_entry_files(
                [*parts, entry], child, status, (*ancestors, identity)
            )

    def _iter_entry_files(
        self, parts: list[str], name: str, status: os.stat_result, ancestors: tuple[Identity, ...]
    ) -> Iterator["JobFile"]:
        """Iterate over the files of the entry ``name``: the file itself, the files in the folder,
        or those behind the link.
        """
        is_link = stat.S_ISLNK(status.st_mode)
        try:
            if is_link:
                parts = self._resolve(f"{self.path}/{name}")
                with self._open_folder(parts[:-1]) as folder:
                    target = _read_status(parts[-1], folder) if parts else os.fstat(folder)
            else:
                target = status
            if stat.S_ISDIR(target.st_mode):
                yield from self._iter_folder_files(parts, name, ancestors)
            elif stat.S_ISREG(target.st_mode):
                yield JobFile(self, name, target)
            else:
                self._report_omission(name, OSError(errno.EINVAL, _NO_FILE))
        except LeadsOutError:
            yield JobFile(self, name, status)
        except OSError as error:
            if is_link or not isinstance(error, FileNotFoundError):  # it was deleted
                self._report_omission(name, error)

    def _report_omission(self, name: str, error: LeadsOutError | OSError) -> None:
        """Report that the entry ``name`` is left out, once for each reason."""
        is_ours = isinstance(error, LeadsOutError)
        reason = str(error) if is_ours else f"{self.path}/{name}: {error.strerror}"
        if reason not in self._reported_reasons:
            self._reported_reasons.add(reason)
            self.report(f"{reason}: left out.")

    def _resolve(self, path: str) -> list[str]:
        """Return the components, relative to ``root``, of a path that the job sees, with all links
        resolved.

        Raises :class:`LeadsOutError` if it leads out, and ``OSError`` if the path does not exist.
        """
        root_parts, links = _split_path(self.job_root), 0
        parts: list[str] = []
        queue = _split_path(path)[::-1]
        while queue:
            if (name := queue.pop()) == "..":
                parts = parts[:-1]
                continue
            parts = [*parts, name]
            if parts == root_parts[: len(parts)]:  # it is ``job_root`` or one of its parents
                continue
            # The path has left the job's folders: nothing outside may be accessed.
            if parts[: len(root_parts)] != root_parts:
                break
            with self._open_folder(parts[len(root_parts) : -1]) as folder:
                target = _read_link_target(name, folder)
            if target is None:
                continue
            if (links := links + 1) > LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            parts = [] if target.startswith("/") else parts[:-1]
            # The job ran at ``root`` itself, without a mount.
            if f"{target}/".startswith(f"{self.root}/"):
                target = self.job_root + target.removeprefix(str(self.root))
            queue += _split_path(target)[::-1]
        if parts[: len(root_parts)] != root_parts:
            raise LeadsOutError(
                f"{path} is a symbolic link to /{'/'.join(parts + queue[::-1])}, outside "
                f"{self.job_root}, where a job's files are: copy the file instead of linking to it"
            )
        return parts[len(root_parts) :]

    @contextlib.contextmanager
    def _open_folder(self, parts: list[str]) -> Iterator[int]:
        """Yield a descriptor of the folder with the components ``parts`` below ``root``.

        Raises ``OSError`` if a component is not a folder, for example because it has become a link.
        """
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in parts:
                parent, folder = folder, os.open(name, _FOLDER, dir_fd=folder)
                os.close(parent)
            yield folder
        finally:
            os.close(folder)


@dataclass(frozen=True, slots=True)
class JobFile:
    """A regular file that a job wrote, at ``name`` below its folder; or a link that leads out."""

    folder: JobFolder
    name: str
    status: os.stat_result = field(compare=False)

    def open(self) -> BinaryIO:
        """Open the file. Raises :class:`LeadsOutError`, ``OSError``."""
        return self.folder.open(self.name)


def _split_path(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _read_link_target(name: str, folder: int) -> str | None:
    """Return the target of the link. Return None if it is not a link."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def _read_status(name: str, folder: int) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)
