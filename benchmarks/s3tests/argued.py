"""Tests of Ceph's suite that the emulator fails rightly, each with its reason."""

_ANONYMOUS = (
    "It sends a request that nobody signed, to what an ACL has made public. The emulator serves "
    "none, whatever an ACL says: a pipeline is code that runs as its owner."
)
_PART = (
    "It wants 400 InvalidPart for a part number that is too large. S3's list of error codes has "
    "InvalidPartNumber, 416: 'The requested part number is not satisfiable'."
)
_COMPOSITE = (
    "It wants the number of parts after a COMPOSITE checksum in GetObjectAttributes. AWS gives "
    "none there: moto's test_copy_key_with_args__using_multipart, which is verified against AWS."
)
_DIGEST = (
    "It wants BadDigest for the checksum 'bad', which is none of that algorithm. S3 says "
    "InvalidRequest: 'Value for x-amz-checksum-sha256 header is invalid.'"
)

ARGUED = {
    "test_100_continue": _ANONYMOUS,
    "test_multipart_get_part": _PART,
    "test_multipart_single_get_part": _PART,
    "test_non_multipart_get_part": _PART,
    "test_multipart_use_cksum_helper_sha256": _COMPOSITE,
    "test_multipart_use_cksum_helper_sha1": _COMPOSITE,
    "test_get_multipart_checksum_object_attributes": _COMPOSITE,
    "test_object_checksum_sha256": _DIGEST,
    "test_object_checksum_crc64nvme": _DIGEST,
    "test_put_excess_tags": (
        "It wants InvalidTag for eleven tags of an object. AWS says BadRequest: moto's "
        "test_put_object_tagging_too_many_tags, which is verified against AWS."
    ),
    "test_delete_marker_nonversioned": (
        "It wants x-amz-delete-marker: false of a key that is not there. HeadObject's "
        "documentation: 'If false, this response header does not appear in the response.'"
    ),
    "test_multipart_resend_first_finishes_last": (
        "It completes an upload with a list that names part 1 twice, with an ETag that a later "
        "upload of the part has replaced: by CompleteMultipartUpload's documentation, InvalidPart."
    ),
}
