"""Settings of a bucket: public access, access control lists, tags, attributes of objects."""

import json
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from werkzeug import Request
from werkzeug.http import http_date

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.storage import s3_xml
from trainyard.emulator.storage.checksums import PREFIX, TYPE
from trainyard.emulator.storage.object_headers import (
    ACL,
    STORAGE,
    check_acl,
    check_tags,
    sums,
    tags_of,
    with_tags,
)
from trainyard.emulator.storage.object_requests import elements, version_header
from trainyard.emulator.storage.object_store import ObjectInfo, ObjectStore
from trainyard.emulator.storage.operation_routes import operation
from trainyard.emulator.storage.preconditions import number
from trainyard.emulator.storage.s3_xml import Response
from trainyard.emulator.storage.upload_body import document
from trainyard.permissions.policy_documents import MalformedPolicy, read_policy

_BLOCK = "public-access-block"
POLICY = "policy"
"""Name of the bucket setting that holds the bucket's policy."""
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_SWITCHES = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")


@dataclass(frozen=True, slots=True)
class Settings:
    store: ObjectStore

    @operation("GetPublicAccessBlock")
    def public_access(self, request: Request, bucket: str, key: str) -> Response:
        """Return the switches; nothing is public here, whatever they are."""
        setting = self.store.setting(bucket, _BLOCK)
        if setting is None:
            message = "The public access block configuration was not found"
            code = "NoSuchPublicAccessBlockConfiguration"
            raise S3Error(code, message, 404, fields={"BucketName": bucket})
        tree = [(name, value) for name, value in json.loads(setting).items()]
        return s3_xml.document("PublicAccessBlockConfiguration", tree)

    @operation("PutPublicAccessBlock", heeds=f"{PREFIX}*")
    def block_public_access(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        configuration = s3_xml.parse(document(request))
        switches = {name: (configuration.findtext(name) or "false").lower() for name in _SWITCHES}
        if not {*switches.values()} <= {"true", "false"}:
            raise ApiError("MalformedXML", f"{', '.join(_SWITCHES)} are true or false: {switches}")
        self.store.set(bucket, _BLOCK, json.dumps({k: v == "true" for k, v in switches.items()}))
        return Response()

    @operation("DeletePublicAccessBlock")
    def unblock_public_access(self, request: Request, bucket: str, key: str) -> Response:
        self.store.set(bucket, _BLOCK, None)
        return Response(status=204)

    @operation("GetBucketPolicy")
    def policy(self, request: Request, bucket: str, key: str) -> Response:
        document_text = self.store.setting(bucket, POLICY)
        if document_text is None:
            message, fields = "The bucket policy does not exist", {"BucketName": bucket}
            raise S3Error("NoSuchBucketPolicy", message, 404, fields=fields)
        return Response(document_text, content_type="application/json")

    @operation("PutBucketPolicy", heeds=f"x-amz-confirm-remove-self-bucket-access {PREFIX}*")
    def put_policy(self, request: Request, bucket: str, key: str) -> Response:
        """Keep the policy, which binds the roles that are held to IAM (see authorization)."""
        self.store.need_bucket(bucket)
        text = document(request).decode(errors="replace")
        try:
            statements = read_policy(f"bucket {bucket}", text).statements
        except MalformedPolicy as wrong:
            raise ApiError("MalformedPolicy", str(wrong)) from None
        for element in ("principal", "resource"):
            if any(getattr(statement, element) is None for statement in statements):
                raise ApiError("MalformedPolicy", f"Missing required field {element.capitalize()}")
        self.store.set(bucket, POLICY, text)
        return Response(status=204)

    @operation("DeleteBucketPolicy")
    def delete_policy(self, request: Request, bucket: str, key: str) -> Response:
        self.store.set(bucket, POLICY, None)
        return Response(status=204)

    @operation("GetBucketAcl")
    def acl(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        return _owners()

    @operation("GetObjectAcl", heeds="versionId")
    def object_acl(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.head(bucket, key, request.args.get("versionId"))
        response = _owners()
        response.headers.extend(version_header(info))
        return response

    @operation("PutBucketAcl", "PutObjectAcl", heeds=f"versionId {ACL} {PREFIX}*")
    def put_acl(self, request: Request, bucket: str, key: str) -> Response:
        """Accept only the access control list that exists anyway; change nothing."""
        self.store.need_bucket(bucket)
        if document(request).strip() or ACL not in request.headers:
            message = "The emulator's S3 does not implement grants: the owner has full control."
            raise ApiError("NotImplemented", message, 501)
        check_acl(request.headers)
        info = self.store.head(bucket, key, request.args.get("versionId")) if key else None
        return Response(headers=version_header(info) if info else {})


def _owners() -> Response:
    """Return the access control list of everything here: its owner has full control."""
    grantee = Element("Grantee", {f"{{{_XSI}}}type": "CanonicalUser"})
    for tag, value in s3_xml.OWNER:
        SubElement(grantee, tag).text = value
    grant = ("Grant", [grantee, ("Permission", "FULL_CONTROL")])
    tree: list = [("Owner", s3_xml.OWNER), ("AccessControlList", [grant])]
    return s3_xml.document("AccessControlPolicy", tree)


SETTING = "tagging"
MOST = 50  # tags of a bucket (S3's limit)


@dataclass(frozen=True, slots=True)
class Tagging:
    store: ObjectStore

    @operation("GetObjectTagging", heeds="versionId")
    def get(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.head(bucket, key, request.args.get("versionId"))
        return _answer(tags_of(info.headers), version_header(info))

    @operation("PutObjectTagging", heeds=["versionId", f"{PREFIX}*"])
    def put(self, request: Request, bucket: str, key: str) -> Response:
        tags = read_tags(s3_xml.parse(document(request)))
        check_tags(tags)
        return Response(headers=version_header(self._set(request, bucket, key, tags)))

    @operation("DeleteObjectTagging", heeds="versionId")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        return Response(status=204, headers=version_header(self._set(request, bucket, key, [])))

    def _set(self, request: Request, bucket: str, key: str, tags: list) -> ObjectInfo:
        version = request.args.get("versionId")
        return self.store.set_headers(bucket, key, version, lambda i: with_tags(i.headers, tags))

    @operation("GetBucketTagging")
    def of_bucket(self, request: Request, bucket: str, key: str) -> Response:
        setting = self.store.setting(bucket, SETTING)
        if setting is None:
            fields = {"BucketName": bucket}
            raise S3Error("NoSuchTagSet", "The TagSet does not exist", 404, fields=fields)
        return _answer([(k, v) for k, v in json.loads(setting)], {})

    @operation("PutBucketTagging", heeds=f"{PREFIX}*")
    def put_of_bucket(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        tags = read_tags(s3_xml.parse(document(request)))
        check_tags(tags, MOST)
        self.store.set(bucket, SETTING, json.dumps(tags) if tags else None)
        return Response(status=204)

    @operation("DeleteBucketTagging")
    def delete_of_bucket(self, request: Request, bucket: str, key: str) -> Response:
        self.store.set(bucket, SETTING, None)
        return Response(status=204)


def read_tags(tagging: Element) -> list[tuple[str, str]]:
    """Return the tags of a document. Raises ``MalformedXML``."""
    if tagging.find("TagSet") is None:
        raise ApiError("MalformedXML", "Tagging lacks TagSet.")
    return [(s3_xml.text(tag, "Key"), s3_xml.text(tag, "Value")) for tag in tagging.iter("Tag")]


def _answer(tags: list[tuple[str, str]], headers: dict[str, str]) -> Response:
    tree = [("Tag", [("Key", key), ("Value", value)]) for key, value in sorted(tags)]
    response = s3_xml.document("Tagging", [("TagSet", tree)])
    response.headers.extend(headers)
    return response


_ATTRIBUTES_HEADER = "x-amz-object-attributes"
_ATTRIBUTE_NAMES = ("ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize")
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Attributes:
    store: ObjectStore

    @operation(
        "GetObjectAttributes",
        heeds=f"versionId {_ATTRIBUTES_HEADER} x-amz-max-parts x-amz-part-number-marker",
    )
    def get(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.head(bucket, key, request.args.get("versionId"))
        names = [
            entry.strip()
            for entry in ",".join(request.headers.getlist(_ATTRIBUTES_HEADER)).split(",")
        ]
        if not set(names) <= set(_ATTRIBUTE_NAMES):
            raise ApiError("InvalidArgument", "Invalid attribute name specified.")
        tree = []
        for name in _ATTRIBUTE_NAMES:
            value = _value(name, request, info) if name in names else None
            if value is not None:
                tree.append((name, value))
        headers = {"Last-Modified": http_date(info.last_modified), **version_header(info)}
        response = s3_xml.document("GetObjectAttributesResponse", tree)
        response.headers.extend(headers)
        return response


def _value(name: str, request: Request, info: ObjectInfo) -> str | int | list | None:
    if name == "ETag":
        return info.etag
    if name == "StorageClass":
        return info.headers.get(STORAGE, "STANDARD")
    if name == "ObjectSize":
        return info.size
    if name == "Checksum":
        checksums = sums(info)
        if not checksums:
            return None
        object_checksums = {
            k: v if k == TYPE else v.partition("-")[0] for k, v in checksums.items()
        }
        return elements(object_checksums | ({} if TYPE in checksums else {TYPE: "FULL_OBJECT"}))
    return _parts(request, info) if info.parts else None


def _parts(request: Request, info: ObjectInfo) -> list:
    """Return the parts; S3 lists them only if they have checksums, here they always are."""
    headers = request.headers
    after = number(headers.get("x-amz-part-number-marker"), "part-number-marker", 0)
    limit = min(number(headers.get("x-amz-max-parts"), "max-parts", _PAGE), _PAGE)
    parts = list(enumerate(info.parts, 1))[after : after + limit]
    tree: list = [("PartsCount", len(info.parts)), ("PartNumberMarker", after)]
    if parts:
        tree.append(("NextPartNumberMarker", parts[-1][0]))
    tree += [("MaxParts", limit), ("IsTruncated", after + len(parts) < len(info.parts))]
    for place, part in parts:
        checksums = {k: v for k, v in part.items() if k.startswith(PREFIX)}
        tree.append(("Part", [*elements(checksums), ("PartNumber", place), ("Size", part["size"])]))
    return tree
