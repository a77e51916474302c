"""Whatever an account's names are, a record does not hold them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.parity.recording import Place
from benchmarks.parity.scrubbing import Packed, Scrubber


def scrubber(**more: Any) -> Scrubber:
    given: dict[str, Any] = {
        "client": str, "prefix": "sagemaker-parity-00ff-", "account": "210987654321",
        "bucket": "sagemaker-parity-00ff-210987654321", "region": "eu-west-1",
        "role": "arn:aws:iam::210987654321:role/team/secret-role",
        "registry": "141502667606.dkr.ecr.eu-west-1.amazonaws.com",
        "names": ("secret-role", "jane.doe"),
    }  # fmt: skip
    place = Place(**given | more)
    return place.scrubber(f"{place.prefix}3-")


@pytest.mark.parametrize(
    "text",
    [
        "User: arn:aws:sts::210987654321:assumed-role/Admin/jane.doe is not authorized to perform",
        "arn:aws-cn:iam::999988887777:user/jane.doe, arn:aws:iam::aws:policy/x",
        "role secret-role cannot be assumed by jane.doe or jane@example.com",
        "AKIAIOSFODNN7EXAMPLE, AROAEXAMPLEEXAMPLE123:jane.doe, from 203.0.113.9:443",
        "https://sqs.eu-west-1.amazonaws.com/210987654321/sagemaker-parity-00ff-3-q",
        "s3://sagemaker-parity-00ff-210987654321/sagemaker-parity-00ff-3-x 999988887777",
    ],
)
def test_names_and_numbers_of_an_account_are_replaced(text: str):
    said = scrubber()({"a": [text], text: 1})
    for own in ("210987654321", "999988887777", "jane", "secret-role", "eu-west-1", "00ff",
                "AKIA", "AROA", "203.0.113.9"):  # fmt: skip
        assert own not in json.dumps(said)


def test_what_was_written_is_not_replaced_again():
    scrub = scrubber(role="arn:aws:iam::210987654321:role/account", names=("account", "role", ""))
    said = scrub("210987654321 arn:aws:iam::210987654321:role/account role account accounts")
    assert said == "<account> <role> <name> <name> accounts"


def test_what_differs_from_run_to_run_is_replaced():
    source = Packed(b"zip")
    source.source = {"index.py": "def f"}
    answer = {
        "b": [datetime.now(UTC), "at 2026-11-22T09:00:00.123Z", 1795856000123, 2.5, True],
        "ResponseMetadata": {}, "CreatedBy": {"UserProfileName": "jane"}, "c": source,
        "a": "arn:x:210987654321:y/execution/abcdefghijkl",
    }  # fmt: skip
    assert scrubber()(answer) == {
        "a": "arn:x:<account>:y/execution/<execution>",
        "b": ["<time>", "at <time>", "<number>", 2.5, True],
        "c": {"index.py": "def f"},
    }
