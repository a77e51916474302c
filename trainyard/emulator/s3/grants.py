"""The grants of an access control list, as the headers of a request say them."""

import json

from werkzeug.datastructures import Headers

from trainyard.emulator.api import ApiError
from trainyard.emulator.s3 import xml

ACL = "x-amz-acl"
_GRANT = "x-amz-grant-"
HEADERS = f"{ACL} {_GRANT}*"
_GROUPS = "http://acs.amazonaws.com/groups/"
_ALL, _KNOWN = f"{_GROUPS}global/AllUsers", f"{_GROUPS}global/AuthenticatedUsers"
_LOGS = f"{_GROUPS}s3/LogDelivery"
_CANNED = {  # name → (group, permission) beside the owner's own
    "private": [],
    "bucket-owner-read": [],
    "bucket-owner-full-control": [],
    "public-read": [(_ALL, "READ")],
    "public-read-write": [(_ALL, "READ"), (_ALL, "WRITE")],
    "authenticated-read": [(_KNOWN, "READ")],
    "log-delivery-write": [(_LOGS, "WRITE"), (_LOGS, "READ_ACP")],
}
PERMISSIONS = ("FULL_CONTROL", "READ", "WRITE", "READ_ACP", "WRITE_ACP")
Grants = list[list[str]]
"""Each: ``URI``, ``ID`` or ``EmailAddress``; its value; a permission."""

OWNER_ID = dict(xml.OWNER)["ID"]
PRIVATE: Grants = [["ID", OWNER_ID, "FULL_CONTROL"]]


def acl_of(headers: Headers) -> str | None:
    """The grants that the headers of a request ask for, as they are kept; None for no headers.

    Raises ``InvalidArgument`` for a list that S3 does not know either.
    """
    named = [(k.lower(), v) for k, v in headers.items() if k.lower().startswith(_GRANT)]
    canned = headers.get(ACL)
    if canned is not None and named:
        message = "Specifying both Canned ACLs and Header Grants is not allowed"
        raise ApiError("InvalidRequest", message)
    if canned is not None:
        if canned not in _CANNED:
            raise ApiError("InvalidArgument", f"x-amz-acl {canned!r} is no canned ACL.")
        return json.dumps(PRIVATE + [["URI", group, may] for group, may in _CANNED[canned]])
    return json.dumps([each for k, v in named for each in _granted(k, v)]) if named else None


def _granted(header: str, value: str) -> Grants:
    """``x-amz-grant-read: id="...", uri="..."``"""
    permission = header.removeprefix(_GRANT).replace("-", "_").upper()
    kinds = {"id": "ID", "uri": "URI", "emailaddress": "EmailAddress"}
    grants = []
    for each in value.split(","):
        kind, _, name = each.strip().partition("=")
        if kind.lower() not in kinds or permission not in PERMISSIONS:
            raise ApiError("InvalidArgument", f"{header}: {each.strip()!r} is no grant.")
        grants.append([kinds[kind.lower()], name.strip('"'), permission])
    return grants
