"""Documents about a bucket that are kept and answered, since they hold here by themselves."""

import json
from dataclasses import dataclass

from werkzeug import Request

from trainyard.emulator.api import ApiError
from trainyard.emulator.objects import ObjectStore, S3Error
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.body import document
from trainyard.emulator.s3.checksums import PREFIX
from trainyard.emulator.s3.routes import operation
from trainyard.emulator.s3.xml import Response

_BLOCK = "public-access-block"
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
