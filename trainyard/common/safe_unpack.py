"""Unpack an archive from an untrusted source.

``tarfile`` can do this from Python 3.11.4 on (``filter="data"``), but safely only from 3.11.13,
3.12.11 and 3.13.4 on (CVE-2025-4517): before, a file could be written outside of the folder through
a symbolic link. This module never creates a symbolic link.
"""

import os
import posixpath
import shutil
import tarfile
from pathlib import Path


def unpack_tar(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the files of ``tar`` below ``folder``. No other process may write to that folder.

    Of a file's mode, only the executable bit is kept. A link to a file becomes a hard link, and a
    link to a folder becomes a folder of hard links.

    Raises:
        tarfile.TarError: a member would be outside ``folder``, is a device or a pipe, links to
            something that is not in the archive, or has the path of a member of another kind; or
            the archive is cut off.
    """
    files: set[str] = set()
    links: dict[str, str] = {}
    for member in tar:
        name = _normalize_name(member.name)
        if member.isdir():
            _make_directory(folder / name)
        elif member.isfile():
            _write_member(tar, member, folder / name)
            files.add(name)
        elif member.islnk():
            links[name] = _normalize_name(member.linkname)
        elif member.issym():
            links[name] = _find_link_target(name, member.linkname)
        else:
            raise tarfile.ExtractError(f"{member.name}: is a device or a pipe, not a file")
    # tarfile stops without an error at a damaged header. So check that the archive ends here.
    assert tar.fileobj is not None  # the archive was opened for reading
    tar.fileobj.seek(tar.offset)
    if tar.fileobj.read(tarfile.BLOCKSIZE).strip(b"\0"):
        raise tarfile.ReadError(f"is cut off or damaged at byte {tar.offset} of its content")
    # Links come last, because the target of a link may come after it in the archive.
    _create_links(folder, links, files)


def _create_links(folder: Path, links: dict[str, str], files: set[str]) -> None:
    """Create each link after its target exists, and add it to ``files``, the existing files."""
    while ready := {
        name: resolution for name in links if (resolution := _resolve_link(links, name, files))
    }:
        for name, resolution in ready.items():
            for source, target in resolution.items():
                if source != target:
                    os.link(folder / source, _clear_path(folder / target))
            files.update(resolution.values())
            del links[name]
    for name, target in links.items():
        raise tarfile.ExtractError(f"{name}: links to {target}, which is not in the archive")


def _resolve_link(links: dict[str, str], name: str, files: set[str]) -> dict[str, str]:
    """Return a mapping of each file that the link ``name`` leads to, to its path via the link.

    Return nothing while files of the linked folder may still be created by another link.
    """
    target = links[name]
    if target in files:
        return {target: name}
    below = "" if target == "." else f"{target}/"
    if any(other.startswith(below) for other in links):
        return {}
    return {file: f"{name}/{file.removeprefix(below)}" for file in files if file.startswith(below)}


def _normalize_name(name: str) -> str:
    """Return ``name`` without "." and "..", and without a leading slash, as tar interprets it."""
    plain = posixpath.normpath(name.lstrip("/"))
    if plain.split("/")[0] == "..":
        raise tarfile.ExtractError(f"{name}: would lie outside the folder")
    return plain


def _find_link_target(name: str, link: str) -> str:
    """Return the name of the member that the symbolic link ``name`` leads to."""
    if link.startswith("/"):
        raise tarfile.ExtractError(f"{name}: links to {link}, outside the folder")
    return _normalize_name(posixpath.join(posixpath.dirname(name), link))


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write a regular file."""
    content = tar.extractfile(member)
    assert content is not None  # it is a file
    mode = 0o777 if member.mode & 0o100 else 0o666
    # O_EXCL, so that nothing is written through an existing file or link.
    descriptor = os.open(_clear_path(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        shutil.copyfileobj(content, file)


def _clear_path(path: Path) -> Path:
    """Return ``path`` after creating its folder and removing an earlier member of this name."""
    _make_directory(path.parent)
    if path.is_dir():
        raise tarfile.ExtractError(f"{path}: is a file and a folder in one archive")
    path.unlink(missing_ok=True)
    return path


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise tarfile.ExtractError(f"{path}: is a file and a folder in one archive") from None
