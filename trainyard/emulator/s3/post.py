"""A presigned POST: the form that a browser sends with a file, and what its sender signed of it."""

import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

from werkzeug import Request
from werkzeug.datastructures import Headers
from werkzeug.exceptions import ClientDisconnected
from werkzeug.http import parse_options_header
from werkzeug.sansio import multipart

from trainyard.emulator.api import ApiError
from trainyard.emulator.blob import CHUNK, Blob
from trainyard.emulator.keys import Keys
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.checksums import ALGORITHMS, PREFIX, encoded
from trainyard.emulator.s3.kept import META, TAGS, WRITING, kept, with_tags
from trainyard.emulator.s3.objects import check_target, written_version
from trainyard.emulator.s3.policy import signed_policy
from trainyard.emulator.s3.tagging import read_tags
from trainyard.emulator.s3.xml import Response

_FIELDS = 20 << 10  # bytes of all fields before the file (S3's limit)
_SIGNING = {"x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"}
_SIGNING |= {"x-amz-security-token"}


def is_form(request: Request) -> bool:
    """Whether the request is a form, whose signature is in its fields and nowhere else."""
    query = {"X-Amz-Signature", "Signature"} & set(request.args)
    return (
        request.method == "POST"
        and request.mimetype == "multipart/form-data"
        and "Authorization" not in request.headers
        and not query
    )


@dataclass(frozen=True, slots=True)
class Post:
    store: ObjectStore
    keys: Keys

    def answer(self, request: Request, bucket: str) -> Response:
        """Puts the form's file, if its policy allows that. Raises :class:`ApiError`."""
        parts = _Form(request)
        fields = parts.fields()
        policy = signed_policy(fields, self.keys)
        fields["key"] = _key(fields, parts.filename)
        policy.check({**fields, "bucket": bucket})
        key, headers = fields["key"], _headers(fields)
        check_target(self.store, bucket, key)
        keep, metadata = kept(headers)
        if tagging := fields.get("tagging"):
            keep = with_tags(keep, read_tags(xml.parse(tagging.encode())))
        with self.store.blob() as blob:
            found = _receive(parts, blob, policy.length(), headers)
            info = self.store.commit(bucket, key, blob, metadata=metadata, headers=keep | found)
        response = _success(request, fields, bucket, info.etag)
        response.headers.extend({"ETag": f'"{info.etag}"', **written_version(info)})
        return response


class _Form:
    """The parts of the form as they arrive: all fields, and then the file's bytes."""

    def __init__(self, request: Request) -> None:
        boundary = parse_options_header(request.headers.get("Content-Type"))[1].get("boundary")
        if not boundary:
            raise ApiError("MalformedPOSTRequest", "The form has no boundary.")
        self.filename = ""
        self._decoder = multipart.MultipartDecoder(boundary.encode("latin-1"))
        self._stream = request.stream

    def fields(self) -> dict[str, str]:
        """Those before the file, by lower-case names. Raises for a form without a file."""
        found: dict[str, bytes] = {}
        name = ""
        for event in self._events():
            if isinstance(event, multipart.Field | multipart.File):
                name = event.name.lower()
                if name == "file":
                    self.filename = getattr(event, "filename", "") or ""
                    return {k: v.decode(errors="replace") for k, v in found.items()}
                found[name] = b""
            elif isinstance(event, multipart.Data):
                found[name] += event.data
                if sum(map(len, found.values())) > _FIELDS:
                    message = "The fields of the form have more than 20 KB."
                    raise ApiError("MaxPostPreDataLengthExceeded", message)
        message = "POST requires exactly one file upload per request."
        raise ApiError("InvalidArgument", message)

    def file(self) -> Iterator[bytes]:
        for event in self._events():
            if not isinstance(event, multipart.Data):
                break
            if event.data:
                yield event.data
            if not event.more_data:
                return
        raise ApiError("IncompleteBody", "The form ends in the middle of its file.")

    def _events(self) -> Iterator[multipart.Event]:
        ended = False
        while True:
            event = self._next()
            if not isinstance(event, multipart.NeedData):
                yield event
                if isinstance(event, multipart.Epilogue):
                    return
                continue
            if ended:
                return
            try:
                chunk = self._stream.read(CHUNK)
            except ClientDisconnected:
                chunk = b""
            ended = not chunk
            if chunk:
                self._decoder.receive_data(chunk)

    def _next(self) -> multipart.Event:
        try:
            return self._decoder.next_event()
        except ValueError as wrong:
            message = f"The body of your POST request is not well-formed: {wrong}"
            raise ApiError("MalformedPOSTRequest", message) from wrong


def _key(fields: dict[str, str], filename: str) -> str:
    if not fields.get("key"):
        message = "Bucket POST must contain a field named 'key'.  If it is specified, please check "
        raise ApiError("InvalidArgument", message + "the order of the fields.")
    return fields["key"].replace("${filename}", filename)


def _headers(fields: dict[str, str]) -> Headers:
    """The fields as the headers of a PUT. Raises ``NotImplemented`` for those of no use here."""
    headers = Headers()
    for name, value in fields.items():
        header = "x-amz-acl" if name == "acl" else name
        known = header in WRITING or header.startswith((META, PREFIX))
        if header.startswith("x-amz-") and not known and header not in _SIGNING:
            message = f"The emulator's S3 does not implement {header} of a POST."
            raise ApiError("NotImplemented", message, 501)
        if known and header != TAGS:
            headers[header] = value
    return headers


def _receive(parts: _Form, blob: Blob, length: tuple[int, int], headers: Headers) -> dict[str, str]:
    """The checksum to keep. Raises ``EntityTooLarge``, ``EntityTooSmall``, ``BadDigest``."""
    claims = {k: v for k, v in headers.items() if k[len(PREFIX) :] in ALGORITHMS}
    sums = {name: ALGORITHMS[name[len(PREFIX) :]]() for name in claims}
    for chunk in parts.file():
        blob.write(chunk)
        for each in sums.values():
            each.update(chunk)
        if blob.size > length[1]:
            message = "Your proposed upload exceeds the maximum allowed size"
            raise ApiError("EntityTooLarge", message)
    if blob.size < length[0]:
        message = "Your proposed upload is smaller than the minimum allowed size"
        raise ApiError("EntityTooSmall", message)
    for name, claimed in claims.items():
        if encoded(sums[name]) != claimed:
            raise ApiError("BadDigest", f"The {name} you specified did not match what arrived.")
    return claims


def _success(request: Request, fields: dict[str, str], bucket: str, etag: str) -> Response:
    key = fields["key"]
    if target := fields.get("success_action_redirect") or fields.get("redirect"):
        query = urllib.parse.urlencode({"bucket": bucket, "key": key, "etag": f'"{etag}"'})
        joint = "&" if "?" in target else "?"
        return Response(status=303, headers={"Location": f"{target}{joint}{query}"})
    status = fields.get("success_action_status")
    location = f"{request.host_url}{bucket}/{urllib.parse.quote(key)}"
    if status == "201":
        tree = [("Location", location), ("Bucket", bucket), ("Key", key), ("ETag", f'"{etag}"')]
        return xml.document("PostResponse", tree, 201)
    headers = {"Location": location}
    return Response(status=200 if status == "200" else 204, headers=headers)
