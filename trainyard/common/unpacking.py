"""Unpack an archive that nobody vouches for.

``tarfile`` can do so from Python 3.11.4 on (``filter="data"``), and safely only from 3.11.13,
3.12.11 and 3.13.4 on (CVE-2025-4517): before, a file could follow a symbolic link out of the
folder. Here no symbolic link is ever made.
"""

import os
import posixpath
import shutil
import tarfile
from pathlib import Path


def unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the files of ``tar`` below ``folder``, where nobody else writes.

    Of a file's mode only the executable bit is kept. A link becomes a hard link to the file that it
    names in the archive.

    Raises:
        tarfile.TarError: a member would lie outside ``folder``, is a device or a pipe, links to
            what is not a file of the archive, or stands where a member of another kind does.
    """
    files: set[str] = set()
    links: dict[str, str] = {}
    for member in tar:
        name = _inside(member.name)
        if member.isdir():
            _directory(folder / name)
        elif member.isfile():
            _write(tar, member, folder / name)
            files.add(name)
        elif member.islnk():
            links[name] = _inside(member.linkname)
        elif member.issym():
            links[name] = _target(name, member.linkname)
        else:
            raise tarfile.ExtractError(f"{member.name}: is a device or a pipe, not a file")
    while ready := {name: target for name, target in links.items() if target in files}:
        for name, target in ready.items():
            if name != target:
                os.link(folder / target, _free(folder / name))
            del links[name]
        files |= ready.keys()
    for name, target in links.items():
        raise tarfile.ExtractError(f"{name}: links to {target}, which is not a file of the archive")


def _inside(name: str) -> str:
    """``name`` without "." and ".." and, as tar reads it, without a leading slash."""
    plain = posixpath.normpath(name.lstrip("/"))
    if plain.split("/")[0] == "..":
        raise tarfile.ExtractError(f"{name}: would lie outside the folder")
    return plain


def _target(name: str, link: str) -> str:
    """The member that the symbolic link ``name`` leads to."""
    if link.startswith("/"):
        raise tarfile.ExtractError(f"{name}: links to {link}, outside the folder")
    return _inside(posixpath.join(posixpath.dirname(name), link))


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    assert content is not None  # it is a file
    mode = 0o777 if member.mode & 0o100 else 0o666
    descriptor = os.open(_free(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        shutil.copyfileobj(content, file)


def _free(path: Path) -> Path:
    """``path``, with its folder and without what an earlier member of that name left."""
    _directory(path.parent)
    if path.is_dir():
        raise tarfile.ExtractError(f"{path}: is a file and a folder in one archive")
    path.unlink(missing_ok=True)
    return path


def _directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise tarfile.ExtractError(f"{path}: is a file and a folder in one archive") from None
