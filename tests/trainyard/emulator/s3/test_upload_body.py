"""Uploads as they are sent: framing, and checksums that refuse damage."""

import base64
import hashlib
import socket
import time
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.standin import send, sign_headers


def encode_digest(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def crc32(data: bytes) -> str:
    return encode_digest(zlib.crc32(data).to_bytes(4, "big"))


def encode_chunks(data: bytes, size: int, trailer: str) -> bytes:
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    framed = b"".join(f"{len(c):x};chunk-signature=0\r\n".encode() + c + b"\r\n" for c in chunks)
    return framed + b"0\r\n" + trailer.encode() + b"\r\n"


@pytest.fixture(scope="module")
def put(endpoint, client):
    """Put raw bytes with these headers; return (status, text, contents of the object then)."""
    client("s3").create_bucket(Bucket="wire")
    store = endpoint.app.objects

    def put(data: bytes, headers: dict[str, str]) -> tuple[int, str, bytes | None]:
        store.delete("wire", "key")
        answer = send(endpoint, "s3", "PUT", "/wire/key", headers, data)
        stored = (
            store.locate_file("wire", "key").read_bytes() if store.exists("wire", "key") else None
        )
        return *answer, stored

    return put


TRAILED = {
    "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    "x-amz-trailer": "x-amz-checksum-crc32",
    "Content-Encoding": "aws-chunked",
}


@given(data=st.binary(max_size=200), size=st.integers(1, 64))
def test_chunks_are_taken_apart_and_their_trailer_verified(put, data: bytes, size: int):
    framed = encode_chunks(data, size, f"x-amz-checksum-crc32:{crc32(data)}\r\n")
    headers = TRAILED | {"x-amz-decoded-content-length": str(len(data))}
    assert put(framed, headers) == (200, "", data)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda framed: framed.replace(b"hello", b"hellO"), "BadDigest"),
        (lambda framed: framed.replace(b"5;", b"4;"), "IncompleteBody"),
        (lambda framed: framed.replace(b"x-amz-checksum-crc32", b"x-other"), "BadDigest"),
        (lambda framed: framed[:20], "IncompleteBody"),
        (lambda framed: b"0\r\n\r\n", "IncompleteBody"),
    ],
)
def test_a_damaged_chunked_upload_is_refused(put, damage, code: str):
    data = b"hellohello"
    framed = encode_chunks(data, 5, f"x-amz-checksum-crc32:{crc32(data)}\r\n")
    headers = TRAILED | {"x-amz-decoded-content-length": "10"}
    status, text, stored = put(damage(framed), headers)
    assert (status, stored) == (400, None)
    assert f"<Code>{code}</Code>" in text


@pytest.mark.parametrize(
    ("header", "claim"),
    [
        ("x-amz-checksum-crc32", crc32),
        ("Content-MD5", lambda data: encode_digest(hashlib.md5(data).digest())),
        ("x-amz-content-sha256", lambda data: hashlib.sha256(data).hexdigest()),
        ("x-amz-checksum-sha256", lambda data: encode_digest(hashlib.sha256(data).digest())),
    ],
)
def test_every_claim_about_the_body_is_checked(put, header: str, claim: Callable):
    assert put(b"data", {header: claim(b"data")}) == (200, "", b"data")
    status, text, stored = put(b"data", {header: claim(b"DATA")})
    assert (status, stored) == (400, None)
    assert "not match" in text


def test_a_connection_that_breaks_off_leaves_no_object(endpoint, put):
    host, port = endpoint.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        headers = sign_headers(endpoint, "s3", "PUT", "/wire/broken")
        head = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        length = "Content-Length: 1000\r\n\r\nhalf"
        connection.sendall(f"PUT /wire/broken HTTP/1.1\r\n{head}{length}".encode())
    time.sleep(0.2)
    assert not endpoint.app.objects.exists("wire", "broken")
