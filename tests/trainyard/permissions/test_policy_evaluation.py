"""The evaluator: the IAM user guide's examples, and properties that hold for any policies."""

import fnmatch
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainyard.permissions.policy_documents import (
    MalformedPolicy,
    Policy,
    compile_pattern,
    parse_policy,
)
from trainyard.permissions.policy_evaluation import Policies, Principal, Request, evaluate_request

EXAMPLES = yaml.safe_load(Path(__file__).with_name("published_examples.yaml").read_text())
CASES = [
    pytest.param(example, case, id=f"{example['page'].partition('.')[0]}-{number}")
    for example in EXAMPLES
    for number, case in enumerate(example["cases"], 1)
]
ACCOUNT = "111111111111"
USER = Principal(f"arn:aws:iam::{ACCOUNT}:user/ann")


def policy(*statements: dict, version: str = "2012-10-17", name: str = "p") -> Policy:
    return parse_policy(name, {"Version": version, "Statement": list(statements)})


def principal(who: str) -> Principal:
    kind, name = who.split("/")
    if kind == "user":
        return Principal(f"arn:aws:iam::{ACCOUNT}:{who}")
    return Principal(
        f"arn:aws:sts::{ACCOUNT}:assumed-role/{who}", f"arn:aws:iam::{ACCOUNT}:role/{kind}"
    )


@pytest.mark.parametrize(("example", "case"), CASES)
def test_as_the_guide_says(example: dict, case: dict):
    kinds = {
        kind: policy(*example[kind], version=example.get("version", "2012-10-17"))
        for kind in {"identity", "boundary", "session", "control", "resource"} & example.keys()
    }
    several = {k: (kinds.pop(k),) for k in ("identity", "session", "control") if k in kinds}
    who = case.get("who", "user/ann")
    given_ = {"aws:username": who.rpartition("/")[2]} | case.get("with", {})
    values = {k.lower(): tuple(v if isinstance(v, list) else [v]) for k, v in given_.items()}
    request = Request(
        principal(who), case["do"], case.get("to", "*"), values, owner=case.get("owner", "")
    )
    policies = Policies(**several, **kinds, needs_resource_allow=example.get("must_name", False))
    decision = evaluate_request(request, policies)
    if case["is"] == "explicit":
        assert decision.sid and "with an explicit deny in a" in decision.message
    elif case["is"] == "allowed":
        assert decision.is_allowed, decision.message
    else:
        assert (decision.is_allowed, decision.sid, decision.kind) == (False, "", case["is"])


# properties

ACTIONS = ["s3:GetObject", "s3:PutObject", "sagemaker:CreateModel"]
RESOURCES = ["arn:aws:s3:::b/a", "arn:aws:s3:::b/c/d", "arn:aws:s3:::other"]
statements = st.fixed_dictionaries(
    {
        "Effect": st.sampled_from(["Allow", "Deny"]),
        "Action": st.sampled_from([*ACTIONS, "s3:*", "*", "s3:?etObject"]),
        "Resource": st.sampled_from([*RESOURCES, "*", "arn:aws:s3:::b/*"]),
    },
    optional={
        "Condition": st.dictionaries(
            st.sampled_from(["StringEquals", "StringNotEquals", "StringEqualsIfExists"]),
            st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["x", "y"]), min_size=1),
        )
    },
)
documents = st.lists(statements, min_size=1, max_size=4)
requests = st.builds(
    lambda action, resource, context: Request(USER, action, resource, context),
    st.sampled_from(ACTIONS),
    st.sampled_from(RESOURCES),
    st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from([("x",), ("y",)])),
)
ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}


def is_request_allowed(request: Request, *documents_: list[dict], **others) -> bool:
    identity = tuple(policy(*document) for document in documents_)
    return evaluate_request(request, Policies(identity=identity, **others)).is_allowed


@given(requests, documents, statements)
def test_a_deny_that_applies_always_wins(request, document, deny):
    deny = deny | {"Effect": "Deny"}
    applies = not is_request_allowed(request, [ALL, deny])
    resource = policy(*[s | {"Principal": "*"} for s in [ALL, *document]])
    if applies:
        assert not is_request_allowed(request, [ALL, *document], [deny], resource=resource)


@given(requests, documents, statements)
def test_a_further_allow_takes_nothing_away(request, document, allow):
    allow = allow | {"Effect": "Allow"}
    assert is_request_allowed(request, [*document, allow]) >= is_request_allowed(request, document)


@given(requests, documents, documents)
def test_a_boundary_a_session_and_a_control_policy_only_narrow(request, document, limit):
    both = is_request_allowed(request, document) and is_request_allowed(request, limit)
    for kind in ("boundary", "session", "control"):
        limits = {kind: policy(*limit) if kind == "boundary" else (policy(*limit),)}
        assert is_request_allowed(request, document, **limits) == both


@given(requests, documents.flatmap(lambda d: st.tuples(st.just(d), st.permutations(d))))
def test_the_order_of_statements_is_irrelevant(request, pair):
    assert is_request_allowed(request, pair[0]) == is_request_allowed(request, list(pair[1]))


@given(st.text("ab/:*?[]", max_size=8), st.text("ab/:[]", max_size=8))
def test_wildcards_are_those_of_fnmatch(pattern, text):
    literal = pattern.replace("[", "[[]")  # fnmatch's own wildcard, which IAM has not
    found = compile_pattern(pattern, {}, variables=True)
    assert found and bool(found.fullmatch(text)) == fnmatch.fnmatchcase(text, literal)


@pytest.mark.parametrize("values", [("x", "y"), ("y", "x")])
def test_of_several_values_none_may_match_what_is_excluded(values):
    allow = ALL | {"Condition": {"StringNotEquals": {"k": "x"}}}
    assert not is_request_allowed(Request(USER, "s3:A", "b", {"k": values}), [allow])


# what cannot be evaluated


def test_a_variables_value_is_no_pattern():
    found = compile_pattern("home/${aws:username}/*", {"aws:username": ("*",)}, variables=True)
    assert found and found.fullmatch("home/*/x") and not found.fullmatch("home/ann/x")


def test_a_key_without_a_known_value_is_named_and_never_matches():
    allow = ALL | {"Sid": "Org", "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}}
    request = Request(USER, "s3:GetObject", "arn:aws:s3:::b/a", known_keys=frozenset({"s3:prefix"}))
    for effect in ("Allow", "Deny"):
        decision = evaluate_request(
            request, Policies(identity=(policy(allow | {"Effect": effect}),))
        )
        assert not decision.is_allowed
        assert "the value of the condition key aws:principalorgid" in decision.message
        assert "statement Org of p" in decision.message
    assert is_request_allowed(request, [allow, ALL])  # another statement allows without it


def test_an_operator_that_does_not_exist_is_named():
    allow = ALL | {"Condition": {"StringResembles": {"k": "x"}}}
    decision = evaluate_request(Request(USER, "s3:A", "b"), Policies(identity=(policy(allow),)))
    assert "there is no condition operator StringResembles" in decision.message


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "is not JSON"),
        ({"Version": "2012-10-17"}, "has no Statement"),
        ({"Statement": {"Effect": "allow", "Action": "*"}}, "Effect must be Allow or Deny"),
        ({"Statement": {"Effect": "Allow", "Resource": "*"}}, "has no Action"),
        ({"Statement": ALL | {"NotAction": "a:b"}}, "has both Action and NotAction"),
        ({"Statement": ALL | {"Ressource": "*"}}, "there is no element Ressource"),
    ],
)
def test_a_document_that_is_no_policy_is_refused(document, says):
    with pytest.raises(MalformedPolicy, match=says):
        parse_policy("p", document)


def test_the_sentence_is_awss():
    request = Request(principal("r/s"), "sagemaker:CreateModel", "arn:x")
    assert evaluate_request(request, Policies()).message == (
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/r/s is not authorized to perform: "
        "sagemaker:CreateModel on resource: arn:x because no identity-based policy allows the "
        "sagemaker:CreateModel action"
    )
    deny = policy(ALL | {"Sid": "No", "Effect": "Deny"}, name="limits")
    assert evaluate_request(request, Policies(boundary=deny)).message.endswith(
        "with an explicit deny in a permissions boundary (statement No of limits)"
    )
