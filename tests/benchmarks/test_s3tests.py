"""What is chosen of Ceph's suite, and how a test's end is called."""

import pytest

from benchmarks.s3tests import ARGUED, choose_core_tests, find_group, judge_outcome

pytestmark = pytest.mark.long

SOURCE = """
import pytest
def helper(): pass
def test_bucket_list_empty(): get_client()
@pytest.mark.fails_on_aws
def test_bucket_list_unordered(): get_client()
def test_object_copy_not_owned_bucket(): get_alt_client()
def test_bucket_acl_default(): get_client()
@pytest.mark.checksum
def test_object_checksum_sha256(): get_client()
def test_account_usage(): get_client()
"""


def test_only_what_the_rule_says_is_chosen():
    assert choose_core_tests(SOURCE) == ["test_bucket_list_empty", "test_object_checksum_sha256"]
    assert [find_group(name) for name in choose_core_tests(SOURCE)] == ["listing", "checksums"]
    assert all(find_group(name) and reason.endswith((".", "'")) for name, reason in ARGUED.items())


@pytest.mark.parametrize(
    ("name", "raw", "outcome"),
    [
        ("test_x", {"passed": True, "refusals": ["GET /"], "why": ""}, "passed"),
        ("test_x", {"passed": False, "refusals": ["GET /"], "why": "a"}, "refused"),
        ("test_x", {"passed": False, "refusals": [], "why": "a"}, "wrong"),
        (next(iter(ARGUED)), {"passed": False, "refusals": [], "why": "a"}, "argued"),
        ("test_x", None, "wrong"),
    ],
)
def test_a_test_is_wrong_unless_it_passed_was_refused_or_is_argued(name, raw, outcome):
    assert judge_outcome(name, raw)["outcome"] == outcome
