"""Comparing policies: by what they allow, not by how they are written."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.common.errors import DefinitionError
from trainyard.permissions.policy_answer import compare_policies
from trainyard.permissions.statements import covers_pattern, minimize_patterns

PATTERNS = st.text("ab*?", max_size=6)


@given(PATTERNS, PATTERNS, st.lists(st.text("abc", max_size=3), min_size=6, max_size=6))
def test_what_a_covered_pattern_matches_the_covering_one_matches_too(wide, narrow, fillings):
    filled = iter(fillings)
    text = "".join(
        next(filled) if c == "*" else (next(filled) + "c")[:1] if c == "?" else c for c in narrow
    )
    assert covers_pattern(narrow, text)
    if covers_pattern(wide, narrow):
        assert covers_pattern(wide, text)


@given(st.lists(PATTERNS, max_size=5))
def test_the_minimal_patterns_still_cover_all(patterns):
    kept = minimize_patterns(patterns)
    assert all(any(covers_pattern(k, p) for k in kept) for p in patterns)
    assert not any(
        a != b and covers_pattern(a, b) and not covers_pattern(b, a) for a in kept for b in kept
    )


def allow(actions, resources, condition=None, **more) -> dict:
    statement = {"Effect": "Allow", "Action": actions, "Resource": resources, **more}
    return statement | ({"Condition": condition} if condition else {})


def describe_differences(derived: list[dict], given_: list[dict] | dict) -> list[str]:
    found = compare_policies({"Statement": derived}, {"Statement": given_})
    return [f"{d.kind} {d.action} {d.resource}" for d in found]


NEEDED = [
    allow(["s3:GetObject"], ["arn:aws:s3:::b/in/*", "arn:aws:s3:::b/code/*"], Sid="Read"),
    allow(["s3:ListBucket"], ["arn:aws:s3:::b"], {"StringLike": {"s3:prefix": ["in/*", "code/*"]}}),
]


def test_the_same_in_other_words_is_the_same():
    listed = {"StringLike": {"S3:Prefix": ["code/*", "in/*"]}}
    other = [
        allow("s3:getobject", "arn:aws:s3:::b/code/*"),
        allow("s3:GetObject", "arn:aws:s3:::b/in/*"),
        allow(["s3:ListBucket"], "arn:aws:s3:::b", listed),
    ]
    assert describe_differences(NEEDED, other) == []
    assert (
        describe_differences(NEEDED, [*other, allow("s3:GetObject", "arn:aws:s3:::b/in/part/*")])
        == []
    )


IN, CODE = NEEDED[0]["Resource"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s[0]["Resource"].pop(), [f"shortage s3:GetObject {CODE}"]),
        (
            lambda s: s[0].update(Action=["s3:Get*"]),
            [f"excess s3:Get* {IN}", f"excess s3:Get* {CODE}"],
        ),
        (lambda s: s[0].update(Resource="*"), ["excess s3:GetObject *"]),
        (
            lambda s: s[0]["Resource"].append("arn:aws:s3:::b/inside/*"),
            ["excess s3:GetObject arn:aws:s3:::b/inside/*"],
        ),
        (lambda s: s[1].pop("Condition"), ["excess s3:ListBucket arn:aws:s3:::b"]),
        (
            lambda s: s[1]["Condition"]["StringLike"]["s3:prefix"].pop(),
            ["shortage s3:ListBucket arn:aws:s3:::b"],
        ),
        (
            lambda s: s[1]["Condition"]["StringLike"]["s3:prefix"].append("other/*"),
            ["excess s3:ListBucket arn:aws:s3:::b"],
        ),
        (
            lambda s: s[0].update(Condition={"Bool": {"aws:SecureTransport": "true"}}),
            [f"shortage s3:GetObject {IN}", f"shortage s3:GetObject {CODE}"],
        ),
        (
            lambda s: s.append(allow("s3:*", IN) | {"Effect": "Deny"}),
            [f"shortage s3:GetObject {IN}"],
        ),
        (lambda s: s.append(allow("iam:PassRole", "*")), ["excess iam:PassRole *"]),
    ],
)
def test_shortage_and_excess(change, expected):
    changed = copy.deepcopy(NEEDED)
    change(changed)
    assert describe_differences(NEEDED, changed) == expected


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(
        DefinitionError, match="NotAction and NotResource allow more than they list"
    ):
        describe_differences(NEEDED, [{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}])
    with pytest.raises(DefinitionError, match="has no Statement"):
        compare_policies({"Statement": []}, {"Version": "2012-10-17"})
