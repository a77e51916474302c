"""Requests on a bucket, on its settings, and on the account's list of buckets."""

import json
import re
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from werkzeug import Request

from trainyard.emulator.request_scope import REGION, ApiError, S3Error
from trainyard.emulator.s3 import list_objects, operation_routes
from trainyard.emulator.s3.multipart import Uploads
from trainyard.emulator.s3.object_requests import (
    ACL,
    build_version_header,
    check_acl,
    check_tags,
    make_delete_check,
    parse_number,
    parse_tags,
    replace_tags,
)
from trainyard.emulator.s3.object_store import ObjectInfo, ObjectStore
from trainyard.emulator.s3.operation_routes import Response, operation
from trainyard.emulator.s3.upload_body import PREFIX, read_document
from trainyard.permissions.policy_documents import MalformedPolicy, parse_policy

_LISTING = "prefix delimiter max-keys encoding-type"
_PLACE = "location"
_SCOPE = re.compile(r"/\d{8}/([^/]+)/s3/aws4_request")
_MOST_DELETED = 1000  # maximum objects that one DeleteObjects may name (S3's limit)
MAY_DELETE = "trainyard.may_delete"
"""Key of the WSGI environment: called with bucket, key and version (or None) of each object that
DeleteObjects names; raises ApiError if the caller may not delete it."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Requests on buckets."""

    store: ObjectStore
    uploads: Uploads

    @operation("ListBuckets", heeds="max-buckets continuation-token prefix bucket-region")
    def list_buckets(self, request: Request, bucket: str, key: str) -> Response:
        args = request.args
        limit = parse_number(args.get("max-buckets"), "max-buckets", 10_000, 1, 10_000)
        prefix, after = (
            args.get("prefix", ""),
            list_objects.decode_token(args.get("continuation-token")),
        )
        is_own_region = args.get("bucket-region", REGION) == REGION
        buckets = [
            (n, t) for n, t in self.store.list_buckets() if n.startswith(prefix) and n > after
        ]
        names = [
            (
                "Bucket",
                [
                    ("Name", name),
                    ("CreationDate", operation_routes.format_timestamp(creation_time)),
                ],
            )
            for name, creation_time in buckets[: limit if is_own_region else 0]
        ]
        tree: list = [("Owner", operation_routes.OWNER), ("Buckets", names)]
        if is_own_region and len(buckets) > limit:
            tree.append(("ContinuationToken", list_objects.encode_token(buckets[limit - 1][0])))
        return operation_routes.make_xml_response(
            "ListAllMyBucketsResult", tree + ([("Prefix", prefix)] * bool(prefix))
        )

    @operation("CreateBucket", heeds=f"{ACL} x-amz-object-ownership {PREFIX}*")
    def create(self, request: Request, bucket: str, key: str) -> Response:
        check_acl(request.headers)
        ownership = request.headers.get("x-amz-object-ownership", "BucketOwnerEnforced")
        if ownership != "BucketOwnerEnforced":
            message = (
                "The emulator's S3 does not implement x-amz-object-ownership "
                f"{ownership} of CreateBucket."
            )
            raise ApiError("NotImplemented", message, 501)
        text = read_document(request)
        configuration = operation_routes.parse_xml(text) if text.strip() else None
        # The region is the one that the client signs for; without a signature, us-east-1.
        credential = request.headers.get("Authorization") or request.args.get(
            "X-Amz-Credential", ""
        )
        scope = _SCOPE.search(credential)
        constraint = _parse_location(configuration, scope[1] if scope else "us-east-1")
        # CreateBucket of an existing bucket succeeds, as in us-east-1, but must not change its
        # region.
        new = not self.store.has_bucket(bucket)
        self.store.create_bucket(bucket)
        if new and constraint:
            self.store.write_setting(bucket, _PLACE, constraint)
        return Response(headers={"Location": f"/{bucket}"})

    @operation("HeadBucket")
    def head(self, request: Request, bucket: str, key: str) -> Response:
        constraint = self.store.read_setting(bucket, _PLACE)
        headers = {"x-amz-bucket-region": constraint or REGION}
        return Response(headers=headers, content_type="application/xml")

    @operation("DeleteBucket")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        self.store.delete_bucket(bucket)
        for upload in self.uploads.list_in_bucket(bucket):
            self.uploads.abort(upload)
        return Response(status=204)

    @operation("ListObjectsV2", heeds=f"{_LISTING} continuation-token fetch-owner start-after")
    def list_objects_v2(self, request: Request, bucket: str, key: str) -> Response:
        self.store.check_bucket(bucket)
        return list_objects.answer_list_v2(self.store, bucket, request)

    @operation("ListObjects", heeds=f"{_LISTING} marker")
    def list_objects(self, request: Request, bucket: str, key: str) -> Response:
        self.store.check_bucket(bucket)
        return list_objects.answer_list_v1(self.store, bucket, request)

    @operation("GetBucketLocation")
    def read_location(self, request: Request, bucket: str, key: str) -> Response:
        """Return the bucket's region; an empty constraint means us-east-1."""
        return operation_routes.make_xml_response(
            "LocationConstraint", self.store.read_setting(bucket, _PLACE) or ""
        )

    @operation("DeleteObjects", heeds=f"x-amz-bypass-governance-retention {PREFIX}*")
    def delete_objects(self, request: Request, bucket: str, key: str) -> Response:
        self.store.check_bucket(bucket)
        request_tree = operation_routes.parse_xml(read_document(request))
        quiet = request_tree.findtext("Quiet") == "true"
        objects = request_tree.findall("Object")
        if not 1 <= len(objects) <= _MOST_DELETED:
            message = f"Delete must name 1 to {_MOST_DELETED} objects, not {len(objects)}."
            raise ApiError("MalformedXML", message)
        tree = []
        for element in objects:
            tag, entry = self._delete_one(request, bucket, element)
            if tag == "Error" or not quiet:
                tree.append((tag, entry))
        return operation_routes.make_xml_response("DeleteResult", tree)

    def _delete_one(self, request: Request, bucket: str, element: Element) -> tuple[str, list]:
        """Delete one object of a DeleteObjects request; return its entry in the response."""
        key, version = (
            operation_routes.read_child_text(element, "Key"),
            element.findtext("VersionId"),
        )
        entry = [("Key", key)] + ([("VersionId", version)] if version else [])
        try:
            if may_delete := request.environ.get(MAY_DELETE):
                may_delete(bucket, key, version)
            if more := {child.tag for child in element} - {"Key", "VersionId", "ETag"}:
                message = f"The emulator's S3 does not implement {min(more)} of DeleteObjects."
                raise ApiError("NotImplemented", message, 501)
            check = make_delete_check(element.findtext("ETag"))
            result = self.store.delete(bucket, key, version or None, check=check)
        # One refused object becomes an entry of the response; the others are deleted anyway.
        except ApiError as failure:
            return "Error", [*entry, ("Code", failure.code), ("Message", failure.message)]
        if result.marker:
            entry.append(("DeleteMarker", "true"))
            entry.append(("DeleteMarkerVersionId", result.version))
        return "Deleted", entry


def _parse_location(configuration: Element | None, region: str) -> str:
    """Return the region in the request's configuration; empty for us-east-1.

    It must be the region that the client signed for, unless that is us-east-1. Raises
    ``NotImplemented`` for other members of the configuration.
    """
    for child in configuration if configuration is not None else ():
        if child.tag != "LocationConstraint":
            message = f"The emulator's S3 does not implement {child.tag} of CreateBucket."
            raise ApiError("NotImplemented", message, 501)
    constraint = (
        configuration.findtext("LocationConstraint") if configuration is not None else None
    ) or ""
    if region not in ("us-east-1", constraint):
        message = (
            f"The {constraint or 'unspecified'} location constraint is incompatible for the region"
        )
        message += " specific endpoint this request was sent to."
        raise ApiError("IllegalLocationConstraintException", message)
    # S3 has no constraint for us-east-1: to omit it means that region, to name it is an error.
    if constraint == "us-east-1" or not list_objects.REGIONS.fullmatch(constraint or "EU"):
        message = "The specified location-constraint is not valid"
        fields = {"LocationConstraint": constraint}
        raise S3Error("InvalidLocationConstraint", message, fields=fields)
    return constraint


# Settings of a bucket: public access, access control lists, tags, attributes of objects.

_BLOCK = "public-access-block"
POLICY = "policy"
"""Name of the bucket setting that holds the bucket's policy."""
_SWITCHES = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")


@dataclass(frozen=True, slots=True)
class Settings:
    """Requests on the public access block, the policy and the access control list."""

    store: ObjectStore

    @operation("GetPublicAccessBlock")
    def read_public_access(self, request: Request, bucket: str, key: str) -> Response:
        """Return the public access settings. They have no effect: nothing here is public."""
        setting = self.store.read_setting(bucket, _BLOCK)
        if setting is None:
            message = "The public access block configuration was not found"
            code = "NoSuchPublicAccessBlockConfiguration"
            raise S3Error(code, message, 404, fields={"BucketName": bucket})
        tree = [(name, value) for name, value in json.loads(setting).items()]
        return operation_routes.make_xml_response("PublicAccessBlockConfiguration", tree)

    @operation("PutPublicAccessBlock", heeds=f"{PREFIX}*")
    def block_public_access(self, request: Request, bucket: str, key: str) -> Response:
        self.store.check_bucket(bucket)
        configuration = operation_routes.parse_xml(read_document(request))
        switches = {name: (configuration.findtext(name) or "false").lower() for name in _SWITCHES}
        if not {*switches.values()} <= {"true", "false"}:
            raise ApiError(
                "MalformedXML", f"{', '.join(_SWITCHES)}: expected true or false: {switches}"
            )
        self.store.write_setting(
            bucket, _BLOCK, json.dumps({k: v == "true" for k, v in switches.items()})
        )
        return Response()

    @operation("DeletePublicAccessBlock")
    def unblock_public_access(self, request: Request, bucket: str, key: str) -> Response:
        self.store.write_setting(bucket, _BLOCK, None)
        return Response(status=204)

    @operation("GetBucketPolicy")
    def read_bucket_policy(self, request: Request, bucket: str, key: str) -> Response:
        document_text = self.store.read_setting(bucket, POLICY)
        if document_text is None:
            message, fields = "The bucket policy does not exist", {"BucketName": bucket}
            raise S3Error("NoSuchBucketPolicy", message, 404, fields=fields)
        return Response(document_text, content_type="application/json")

    @operation("PutBucketPolicy", heeds=f"x-amz-confirm-remove-self-bucket-access {PREFIX}*")
    def put_policy(self, request: Request, bucket: str, key: str) -> Response:
        """Store the policy, which IAM checks use (``trainyard.emulator.iam.authority``)."""
        self.store.check_bucket(bucket)
        text = read_document(request).decode(errors="replace")
        try:
            statements = parse_policy(f"bucket {bucket}", text).statements
        except MalformedPolicy as wrong:
            raise ApiError("MalformedPolicy", str(wrong)) from None
        # The policy of a bucket, unlike that of a role, must name its principals and resources.
        for element in ("principal", "resource"):
            if any(getattr(statement, element) is None for statement in statements):
                raise ApiError("MalformedPolicy", f"Missing required field {element.capitalize()}")
        self.store.write_setting(bucket, POLICY, text)
        return Response(status=204)

    @operation("DeleteBucketPolicy")
    def delete_policy(self, request: Request, bucket: str, key: str) -> Response:
        self.store.write_setting(bucket, POLICY, None)
        return Response(status=204)


SETTING = "tagging"
"""Name of the bucket setting that contains the bucket's tags."""
MOST = 50  # maximum tags of a bucket (S3's limit)


@dataclass(frozen=True, slots=True)
class Tagging:
    """Requests on the tags of objects and buckets."""

    store: ObjectStore

    @operation("GetObjectTagging", heeds="versionId")
    def get(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.read_info(bucket, key, request.args.get("versionId"))
        return _build_response(parse_tags(info.headers), build_version_header(info))

    @operation("PutObjectTagging", heeds=["versionId", f"{PREFIX}*"])
    def put(self, request: Request, bucket: str, key: str) -> Response:
        tags = read_tags(operation_routes.parse_xml(read_document(request)))
        check_tags(tags)
        return Response(
            headers=build_version_header(self._set_object_tags(request, bucket, key, tags))
        )

    @operation("DeleteObjectTagging", heeds="versionId")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        return Response(
            status=204,
            headers=build_version_header(self._set_object_tags(request, bucket, key, [])),
        )

    def _set_object_tags(self, request: Request, bucket: str, key: str, tags: list) -> ObjectInfo:
        version = request.args.get("versionId")
        return self.store.set_headers(bucket, key, version, lambda i: replace_tags(i.headers, tags))

    @operation("GetBucketTagging")
    def read_bucket_tags(self, request: Request, bucket: str, key: str) -> Response:
        setting = self.store.read_setting(bucket, SETTING)
        if setting is None:
            fields = {"BucketName": bucket}
            raise S3Error("NoSuchTagSet", "The TagSet does not exist", 404, fields=fields)
        return _build_response([(k, v) for k, v in json.loads(setting)], {})

    @operation("PutBucketTagging", heeds=f"{PREFIX}*")
    def put_bucket_tags(self, request: Request, bucket: str, key: str) -> Response:
        self.store.check_bucket(bucket)
        tags = read_tags(operation_routes.parse_xml(read_document(request)))
        check_tags(tags, MOST)
        # An empty set means no tags: GetBucketTagging then returns NoSuchTagSet.
        self.store.write_setting(bucket, SETTING, json.dumps(tags) if tags else None)
        return Response(status=204)

    @operation("DeleteBucketTagging")
    def delete_bucket_tags(self, request: Request, bucket: str, key: str) -> Response:
        self.store.write_setting(bucket, SETTING, None)
        return Response(status=204)


def read_tags(tagging: Element) -> list[tuple[str, str]]:
    """Return (key, value) of each tag in a Tagging document. Raises ``MalformedXML``."""
    if tagging.find("TagSet") is None:
        raise ApiError("MalformedXML", "Tagging lacks TagSet.")
    return [
        (
            operation_routes.read_child_text(tag, "Key"),
            operation_routes.read_child_text(tag, "Value"),
        )
        for tag in tagging.iter("Tag")
    ]


def _build_response(tags: list[tuple[str, str]], headers: dict[str, str]) -> Response:
    tree = [("Tag", [("Key", key), ("Value", value)]) for key, value in sorted(tags)]
    response = operation_routes.make_xml_response("Tagging", [("TagSet", tree)])
    response.headers.extend(headers)
    return response
