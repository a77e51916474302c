"""Tags of an object, of one of its versions, and of a bucket."""

import json
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from werkzeug import Request

from trainyard.emulator.api import ApiError
from trainyard.emulator.objects import ObjectInfo, ObjectStore, S3Error
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.body import document
from trainyard.emulator.s3.checksums import PREFIX
from trainyard.emulator.s3.kept import check_tags, tags_of, with_tags
from trainyard.emulator.s3.objects import version_header
from trainyard.emulator.s3.routes import operation
from trainyard.emulator.s3.xml import Response

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
        tags = read_tags(xml.parse(document(request)))
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
        kept = self.store.setting(bucket, SETTING)
        if kept is None:
            fields = {"BucketName": bucket}
            raise S3Error("NoSuchTagSet", "The TagSet does not exist", 404, fields=fields)
        return _answer([(k, v) for k, v in json.loads(kept)], {})

    @operation("PutBucketTagging", heeds=f"{PREFIX}*")
    def put_of_bucket(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        tags = read_tags(xml.parse(document(request)))
        check_tags(tags, MOST)
        self.store.set(bucket, SETTING, json.dumps(tags) if tags else None)
        return Response(status=204)

    @operation("DeleteBucketTagging")
    def delete_of_bucket(self, request: Request, bucket: str, key: str) -> Response:
        self.store.set(bucket, SETTING, None)
        return Response(status=204)


def read_tags(tagging: Element) -> list[tuple[str, str]]:
    """Raises ``MalformedXML``."""
    if tagging.find("TagSet") is None:
        raise ApiError("MalformedXML", "Tagging lacks TagSet.")
    return [(xml.text(tag, "Key"), xml.text(tag, "Value")) for tag in tagging.iter("Tag")]


def _answer(tags: list[tuple[str, str]], headers: dict[str, str]) -> Response:
    tree = [("Tag", [("Key", key), ("Value", value)]) for key, value in sorted(tags)]
    response = xml.document("Tagging", [("TagSet", tree)])
    response.headers.extend(headers)
    return response
