"""Access control lists of objects and buckets: kept and answered, and never looked at.

All that is here belongs to one account, and a request without its signature is refused, so that a
list makes nothing more open, whatever it says.
"""

import json
from dataclasses import dataclass
from xml.etree import ElementTree

from werkzeug import Request

from trainyard.emulator.api import ApiError
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.body import document
from trainyard.emulator.s3.checksums import PREFIX
from trainyard.emulator.s3.grants import (
    ACL,
    HEADERS,
    OWNER_ID,
    PERMISSIONS,
    PRIVATE,
    Grants,
    acl_of,
)
from trainyard.emulator.s3.objects import version_header
from trainyard.emulator.s3.routes import operation
from trainyard.emulator.s3.xml import Response

SETTING = "acl"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"


@dataclass(frozen=True, slots=True)
class Acls:
    store: ObjectStore

    @operation("GetObjectAcl", heeds="versionId")
    def get(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.head(bucket, key, request.args.get("versionId"))
        return _answer(info.headers.get(ACL), version_header(info))

    @operation("PutObjectAcl", heeds=f"versionId {HEADERS} {PREFIX}*")
    def put(self, request: Request, bucket: str, key: str) -> Response:
        grants = _asked(request)
        version = request.args.get("versionId")
        info = self.store.set_headers(bucket, key, version, lambda i: i.headers | {ACL: grants})
        return Response(headers=version_header(info))

    @operation("GetBucketAcl")
    def of_bucket(self, request: Request, bucket: str, key: str) -> Response:
        return _answer(self.store.setting(bucket, SETTING), {})

    @operation("PutBucketAcl", heeds=f"{HEADERS} {PREFIX}*")
    def put_of_bucket(self, request: Request, bucket: str, key: str) -> Response:
        self.store.set(bucket, SETTING, _asked(request))
        return Response()


def _asked(request: Request) -> str:
    """The grants of the headers, or of the document. Raises ``MalformedACLError``."""
    text = document(request)
    if (said := acl_of(request.headers)) is not None:
        return said
    grants = []
    for grant in xml.parse(text).iter("Grant"):
        named = [
            (kind, found)
            for kind in ("ID", "URI", "EmailAddress")
            if (found := grant.findtext(f"Grantee/{kind}"))
        ]
        permission = grant.findtext("Permission")
        if not named or permission not in PERMISSIONS:
            message = "The XML you provided was not well-formed or did not validate against our "
            raise ApiError("MalformedACLError", message + "published schema")
        grants.append([*named[0], permission])
    return json.dumps(grants)


def _answer(kept: str | None, headers: dict[str, str]) -> Response:
    grants: Grants = json.loads(kept) if kept else PRIVATE
    tree = [("Grant", [_grantee(kind, name), ("Permission", may)]) for kind, name, may in grants]
    owned: list = [("Owner", xml.OWNER), ("AccessControlList", tree)]
    response = xml.document("AccessControlPolicy", owned)
    response.headers.extend(headers)
    return response


def _grantee(kind: str, name: str) -> ElementTree.Element:
    types = {"ID": "CanonicalUser", "URI": "Group", "EmailAddress": "AmazonCustomerByEmail"}
    grantee = ElementTree.Element("Grantee", {f"{{{_XSI}}}type": types[kind]})
    ElementTree.SubElement(grantee, kind).text = name
    if kind == "ID" and name == OWNER_ID:
        ElementTree.SubElement(grantee, "DisplayName").text = dict(xml.OWNER)["DisplayName"]
    return grantee
