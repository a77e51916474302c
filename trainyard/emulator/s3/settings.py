"""Settings of a bucket that hold by themselves here, where nothing is public."""

import json
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from werkzeug import Request

from trainyard.emulator.api import ApiError
from trainyard.emulator.objects import ObjectStore, S3Error
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.body import document
from trainyard.emulator.s3.checksums import PREFIX
from trainyard.emulator.s3.kept import ACL, check_acl
from trainyard.emulator.s3.objects import version_header
from trainyard.emulator.s3.routes import operation
from trainyard.emulator.s3.xml import Response

_BLOCK = "public-access-block"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_SWITCHES = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")


@dataclass(frozen=True, slots=True)
class Settings:
    store: ObjectStore

    @operation("GetPublicAccessBlock")
    def public_access(self, request: Request, bucket: str, key: str) -> Response:
        """Nothing is public here, whatever the switches say."""
        kept = self.store.setting(bucket, _BLOCK)
        if kept is None:
            message = "The public access block configuration was not found"
            code = "NoSuchPublicAccessBlockConfiguration"
            raise S3Error(code, message, 404, fields={"BucketName": bucket})
        tree = [(name, value) for name, value in json.loads(kept).items()]
        return xml.document("PublicAccessBlockConfiguration", tree)

    @operation("PutPublicAccessBlock", heeds=f"{PREFIX}*")
    def block_public_access(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        wanted = xml.parse(document(request))
        found = {name: (wanted.findtext(name) or "false").lower() for name in _SWITCHES}
        if not {*found.values()} <= {"true", "false"}:
            raise ApiError("MalformedXML", f"{', '.join(_SWITCHES)} are true or false: {found}")
        self.store.set(bucket, _BLOCK, json.dumps({k: v == "true" for k, v in found.items()}))
        return Response()

    @operation("DeletePublicAccessBlock")
    def unblock_public_access(self, request: Request, bucket: str, key: str) -> Response:
        self.store.set(bucket, _BLOCK, None)
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
        """Changes nothing: only the list that is there anyhow is accepted."""
        self.store.need_bucket(bucket)
        if document(request).strip() or ACL not in request.headers:
            message = "The emulator's S3 does not implement grants: all belongs to the owner."
            raise ApiError("NotImplemented", message, 501)
        check_acl(request.headers)
        info = self.store.head(bucket, key, request.args.get("versionId")) if key else None
        return Response(headers=version_header(info) if info else {})


def _owners() -> Response:
    """The list of access control that everything here has: its owner may do all."""
    grantee = Element("Grantee", {f"{{{_XSI}}}type": "CanonicalUser"})
    for tag, value in xml.OWNER:
        SubElement(grantee, tag).text = value
    grant = ("Grant", [grantee, ("Permission", "FULL_CONTROL")])
    tree: list = [("Owner", xml.OWNER), ("AccessControlList", [grant])]
    return xml.document("AccessControlPolicy", tree)
