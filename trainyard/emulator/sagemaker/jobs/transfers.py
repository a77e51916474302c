"""Transfers between S3 and a node: download the objects of an input, upload a job's files."""

import gzip
import json
import os
import re
import shutil
import tarfile
import threading
from dataclasses import dataclass
from os import fstat, stat_result
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from trainyard.emulator.request_scope import ApiError, Thread, make_validation_error, read_region
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.job_files import ClientFault, JobFile, JobFolder

_ADDRESS = re.compile(
    r"https://(?:(?P<bucket>[a-z0-9.-]+)\.)?s3[.-](?:[a-z0-9-]+\.)?amazonaws\.com(?:\.cn)?/"
    r"(?(bucket)|(?P<first>[^/]+)/)(?P<key>.*)"
)
"""HTTPS address of an object in S3, which ModelDataUrl may have. The bucket is in the host name or
first in the path.
"""
LONGEST = 255  # maximum length of a file name in bytes
COMPRESSION = 1  # gzip level: weights hardly compress, so a higher level only costs time


class NoObjects(ClientFault):
    """No object matches an input."""


@dataclass(frozen=True, slots=True)
class Source:
    """An object to download. ``path`` is its target, relative to the channel's directory."""

    bucket: str
    key: str
    path: str


def split_uri(uri: str) -> tuple[str, str]:
    """Split ``s3://bucket/key``, or S3's https address of an object, into (bucket, key).

    Raises:
        ClientFault: the text is neither.
    """
    if match := _ADDRESS.fullmatch(uri):
        return match["bucket"] or match["first"], match["key"]
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise ClientFault(f"{uri!r} is not an S3 URI: expected s3://bucket/key")
    return bucket, key


def check_uri(location: str, uri: str) -> None:
    """Raise ``ValidationException``, which names ``location``, if ``uri`` is not an S3 URI."""
    try:
        split_uri(uri)
    except ClientFault as fault:
        raise make_validation_error(f"{location}: {fault}") from None


def select_objects(objects: ObjectStore, uri: str, kind: str, role: str) -> list[Source]:
    """Return the objects that an ``S3Uri`` of type ``S3Prefix`` or ``ManifestFile`` selects: those
    of a prefix by key, those of a manifest in its order.

    A prefix selects every key that starts with it, as AWS documents: ``s3://b/test`` also selects
    ``test_small/c.csv``.

    Raises:
        NoObjects: no object matches; in AWS's words.
        ClientFault: a key has two slashes in succession; in AWS's words.
    """
    bucket, key = split_uri(uri)
    try:
        if kind == "ManifestFile":
            sources = _read_manifest(objects, bucket, key)
        elif kind == "S3Prefix":
            # Keys that end in a slash are folder markers that S3 consoles create.
            sources = [
                Source(bucket, info.key, build_local_path(key, info.key))
                for info in objects.list(bucket, key)
                if not info.key.endswith("/")
            ]
        else:
            raise ClientFault(
                f"S3DataType {kind!r} is not supported by this emulator: use S3Prefix"
            )
    except ApiError as error:
        if error.code not in ("NoSuchBucket", "NoSuchKey"):
            raise
        raise NoObjects(_explain_no_objects(uri, bucket, role)) from error
    if not sources and kind == "S3Prefix":
        raise NoObjects(_explain_no_objects(uri, bucket, role))
    for source in sources:
        if "//" in f"/{source.key}":
            raise ClientFault(
                "Data download failed:Failed to download data. S3 key: "
                f"s3://{source.bucket}/{source.key} has an illegal char sub-sequence '//' in it"
            )
    return sources


def build_local_path(prefix: str, key: str) -> str:
    """Return the path, below the channel's directory, of an object whose key starts with the
    prefix.

    If the prefix names a folder, the path is the rest of the key. If the prefix ends within a name,
    the path starts with that whole name (sdk#3612: prefix ``data/train`` gives ``train-data.csv``).
    """
    rest = key.removeprefix(prefix)
    if prefix.endswith("/") or not prefix:
        return rest
    return rest[1:] if rest.startswith("/") else key[prefix.rfind("/") + 1 :]


def _explain_no_objects(uri: str, bucket: str, role: str) -> str:
    """Return AWS's message for an input without objects, because people search for its words."""
    return (
        f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that '
        f"the bucket exists in the selected region ({read_region()}), that objects exist under "
        "that S3 "
        f'prefix, and that the role "{role}" has "s3:ListBucket" permissions on bucket "{bucket}".'
    )


def _read_manifest(objects: ObjectStore, bucket: str, key: str) -> list[Source]:
    """Return the objects in a ManifestFile, ``[{"prefix": "s3://b/folder/"}, "a", "b/c", ...]``."""
    try:
        head, *names = json.loads(objects.read_bytes(bucket, key))
        base, folder = split_uri(head["prefix"])
    except (ValueError, TypeError, KeyError) as error:
        message = f'manifest s3://{bucket}/{key}: expected [{{"prefix": "s3://..."}}, "key", ...]'
        raise ClientFault(message) from error
    return [Source(base, folder + name, name) for name in names]


def select_node_share(sources: list[Source], index: int, count: int) -> list[Source]:
    """Return the objects of node ``index`` of ``count`` nodes under ShardedByS3Key: every
    ``count``-th key.
    """
    return sorted(sources, key=lambda source: source.key)[index::count]


def download_objects(objects: ObjectStore, sources: list[Source], directory: Path) -> int:
    """Copy ``sources`` to paths below ``directory``. Return the number of bytes.

    Raises:
        ClientFault: a key leads out of the directory, or two keys collide.
    """
    _check_paths(sources)
    directory.mkdir(parents=True, exist_ok=True)
    total = 0
    for source in sources:
        target = directory / source.path
        if not target.resolve().is_relative_to(directory.resolve()):
            raise ClientFault(f"S3 key {source.key!r} leads out of the input's directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        info, stored_bytes = objects.open(source.bucket, source.key)
        with stored_bytes, target.open("wb") as file:
            for chunk in stored_bytes.iter_chunks(0, info.size):
                file.write(chunk)
        total += info.size
    return total


def _check_paths(sources: list[Source]) -> None:
    """Raise ClientFault if a key cannot be a path, if two objects have the same path, or if one
    object's path is a folder of another's.
    """
    sources_by_path: dict[PurePosixPath, Source] = {}
    for source in sources:
        path = PurePosixPath(source.path)
        if "\0" in source.path or max(len(os.fsencode(part)) for part in path.parts) > LONGEST:
            raise ClientFault(
                f"Data download failed:the key {source.key!r} is not a valid path: expected "
                f"file names without NUL, of at most {LONGEST} bytes"
            )
        _check_free(sources_by_path.setdefault(path, source), source)
    for path, source in sources_by_path.items():
        for folder in path.parents:
            _check_free(sources_by_path.get(folder, source), source)


def _check_free(holder: Source, source: Source) -> None:
    """Raise ClientFault if ``holder``, the object that has the path, is not ``source``."""
    if holder is not source:
        raise ClientFault(
            f"Data download failed:the keys {holder.key!r} and {source.key!r} become "
            f"{holder.path!r} and {source.path!r}, and a directory cannot hold both"
        )


def upload_folder(objects: ObjectStore, folder: JobFolder, uri: str) -> None:
    """Upload every file below ``folder`` to keys under ``uri``.

    Raises:
        ClientFault: a file's name cannot be a key in S3 (raised before anything is uploaded), or
            ``put_file`` raised it.
        LeadsOutError: a link leads out of the job's own files.
    """
    # Upload in the order in which the files were written: a manifest that a job wrote last comes
    # last, so an interrupted upload does not look complete.
    files = sorted(folder.iter_files(), key=lambda file: file.status.st_mtime_ns)
    for file in files:
        _check_name(file.name, uri)
    for file in files:
        with file.open() as stream:
            put_file(objects, uri, file.name, stream)


def put_file(objects: ObjectStore, uri: str, name: str, stream: BinaryIO) -> None:
    """Upload ``stream``, the content of a job's file, to ``uri``/``name``.

    Raises:
        ClientFault: the name cannot be a key, or the bucket does not exist.
    """
    _check_name(name, uri)
    bucket, prefix = split_uri(uri)
    key = join_key(prefix, name)
    try:
        objects.put_stream(bucket, key, stream)
    except ApiError as error:
        if error.code not in ("NoSuchBucket", "KeyTooLongError"):
            raise
        raise ClientFault(
            f"Artifact upload failed:Unable to upload file to s3://{bucket}/{key} "
            f"({error.code}: {error.message})"
        ) from None


def _check_name(name: str, uri: str) -> None:
    """Raise ClientFault if a file's name cannot be part of a key in S3."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ClientFault(
            f"Artifact upload failed:the file {os.fsencode(name)!r} for {uri} has a name that is "
            "not UTF-8, which keys in S3 must be; let the job rename it"
        ) from None


def check_destinations(objects: ObjectStore, request: dict) -> None:
    """Check, before a job starts, that every bucket to which its results go exists.

    Raises:
        ClientFault: a bucket is missing. AWS reports that only when the job has ended.
    """
    outputs = request.get("ProcessingOutputConfig", {}).get("Outputs", [])
    destinations = [
        (f"output {o['OutputName']!r}", o["S3Output"]) for o in outputs if "S3Output" in o
    ]
    fields = ("OutputDataConfig", "CheckpointConfig", "TensorBoardOutputConfig", "TransformOutput")
    destinations += [(field, request[field]) for field in fields if request.get(field)]
    for name, destination in destinations:
        uri = destination.get("S3Uri") or destination.get("S3OutputPath")
        if uri and not objects.has_bucket(bucket := split_uri(uri)[0]):
            raise ClientFault(
                f"Artifact upload failed:Unable to upload to {uri}, of {name} (NoSuchBucket: The "
                f"specified bucket does not exist): create {bucket}, or name another"
            )


def join_key(prefix: str, name: str) -> str:
    """Return ``prefix/name`` with one slash between them and none at the start."""
    return f"{prefix.rstrip('/')}/{name}".lstrip("/")


def write_archive(folders: list[JobFolder], target: Path) -> bool:
    """Write the files of ``folders`` to ``target`` (.tar.gz). Return False, and write nothing, if
    there are no files.

    A file that several nodes wrote is taken from the first of them, starting with algo-1. Raises
    :class:`LeadsOutError`.
    """
    entries: dict[str, JobFile] = {}
    for folder in folders:
        for file in folder.iter_files():
            entries.setdefault(file.name, file)
    if not entries:
        return False
    with (
        target.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", compresslevel=COMPRESSION, mtime=0) as z,
        tarfile.open(fileobj=z, mode="w") as tar,
    ):
        # Sorted and without times and owners, so that equal files give equal bytes.
        for _, file in sorted(entries.items()):
            entry = tarfile.TarInfo(file.name)
            entry.size = file.status.st_size
            entry.mode = 0o755 if file.status.st_mode & 0o111 else 0o644
            with file.open() as stream:
                tar.addfile(entry, stream)
    return True


# Uploads while a job runs: checkpoints, and processing outputs with S3UploadMode Continuous.
# Uploaded files remain if the job fails, because checkpoints exist for that case.

INTERVAL = 1.0  # seconds between checks of the directories
Stamp = tuple[int, int, int]
"""Size in bytes, mtime in ns, inode: a rewritten file differs in at least one of them."""


@dataclass(slots=True)
class _FileState:
    """The state of a file at the last check, and whether that version has been uploaded."""

    stamp: Stamp
    is_uploaded: bool = False


class ContinuousUpload:
    """Upload files below ``folders`` (one per node) to ``uri`` while a job runs.

    A file is uploaded when two successive checks found it unchanged. It is first copied to
    ``copy_path``, so that a partly written file never becomes an object. As on AWS, deleting a file
    does not delete its object.
    """

    def __init__(self, objects: ObjectStore, folders: list[JobFolder], uri: str, copy_path: Path):
        self._objects = objects
        self._folders = folders
        self._uri = uri
        self._aside = copy_path
        self._states: dict[JobFile, _FileState] = {}
        self._stop = threading.Event()
        self._thread = Thread(target=self._watch, daemon=True)
        for folder in folders:
            for file in folder.iter_files():  # files downloaded at the start are in S3 already
                self._states[file] = _FileState(_make_change_stamp(file.status), is_uploaded=True)

    def __enter__(self) -> "ContinuousUpload":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Upload the remaining files. The job's processes have ended, so the files no longer
        change.

        Raises:
            ClientFault: a file could not be uploaded. All others have been uploaded.
        """
        self._stop.set()
        self._thread.join()
        self._check_files(final=True)

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._check_files(final=False)

    def _check_files(self, final: bool) -> None:
        """Upload the files that have not changed since the last check, or all if ``final``. Raises
        ClientFault only if ``final``.
        """
        faults: list[ClientFault] = []
        for folder in self._folders:
            try:
                files = list(folder.iter_files())
            except ClientFault as fault:
                faults.append(fault)
                continue
            for file in files:
                try:
                    self._upload_stable_file(file, final)
                except ClientFault as fault:  # the other files are still uploaded
                    faults.append(fault)
                except OSError:  # renamed, deleted or replaced: the next check sees it
                    continue
        # Raised only at the end, because until then the job may still correct the fault.
        if final and faults:
            raise faults[0]

    def _upload_stable_file(self, file: JobFile, final: bool) -> None:
        """Upload the file if it has not changed since the previous check, or in any case if
        ``final``.
        """
        stamp = _make_change_stamp(file.status)
        state = self._states.get(file)
        if state is None or state.stamp != stamp:
            state = self._states[file] = _FileState(stamp)
            if not final:
                return
        if not state.is_uploaded and self._upload_copy(file, stamp):
            state.is_uploaded = True

    def _upload_copy(self, file: JobFile, stamp: Stamp) -> bool:
        """Upload the file. Return False if it changed since it was checked or while it was
        copied.
        """
        with file.open() as source, self._aside.open("wb") as aside:
            shutil.copyfileobj(source, aside)
            if _make_change_stamp(fstat(source.fileno())) != stamp:
                return False
        with self._aside.open("rb") as stream:
            put_file(self._objects, self._uri, file.name, stream)
        return True


def _make_change_stamp(status: stat_result) -> Stamp:
    """Return the values that show whether a file has changed."""
    return status.st_size, status.st_mtime_ns, status.st_ino
