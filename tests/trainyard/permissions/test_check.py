"""Comparing policies: by what they allow, not by how they are written."""

import copy
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.permissions import main
from trainyard.common.errors import DefinitionError
from trainyard.permissions.check import compare
from trainyard.permissions.statements import covers, minimal

PATTERNS = st.text("ab*?", max_size=6)


@given(PATTERNS, PATTERNS, st.lists(st.text("abc", max_size=3), min_size=6, max_size=6))
def test_what_a_covered_pattern_matches_the_covering_one_matches_too(wide, narrow, fillings):
    filled = iter(fillings)
    text = "".join(
        next(filled) if c == "*" else (next(filled) + "c")[:1] if c == "?" else c for c in narrow
    )
    assert covers(narrow, text)
    if covers(wide, narrow):
        assert covers(wide, text)


@given(st.lists(PATTERNS, max_size=5))
def test_the_minimal_patterns_still_cover_all(patterns):
    kept = minimal(patterns)
    assert all(any(covers(k, p) for k in kept) for p in patterns)
    assert not any(a != b and covers(a, b) and not covers(b, a) for a in kept for b in kept)


def allow(actions, resources, condition=None, **more) -> dict:
    statement = {"Effect": "Allow", "Action": actions, "Resource": resources, **more}
    return statement | ({"Condition": condition} if condition else {})


def told(derived: list[dict], given_: list[dict] | dict) -> list[str]:
    found = compare({"Statement": derived}, {"Statement": given_})
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
    assert told(NEEDED, other) == []
    assert told(NEEDED, [*other, allow("s3:GetObject", "arn:aws:s3:::b/in/part/*")]) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s[0]["Resource"].pop(), ["shortage s3:GetObject arn:aws:s3:::b/code/*"]),
        (
            lambda s: s[0].update(Action=["s3:Get*"]),
            ["excess s3:Get* arn:aws:s3:::b/in/*", "excess s3:Get* arn:aws:s3:::b/code/*"],
        ),
        (lambda s: s[0].update(Resource="*"), ["excess s3:GetObject *"]),
        (
            lambda s: s[0]["Resource"].append("arn:aws:s3:::b/inside/*"),
            ["excess s3:GetObject arn:aws:s3:::b/inside/*"],
        ),
        (lambda s: s[1].pop("Condition"), ["excess s3:ListBucket arn:aws:s3:::b"]),
        (
            lambda s: s[1]["Condition"]["StringLike"].update({"s3:prefix": ["in/*"]}),
            ["shortage s3:ListBucket arn:aws:s3:::b"],
        ),
        (
            lambda s: s[1]["Condition"]["StringLike"]["s3:prefix"].append("other/*"),
            ["excess s3:ListBucket arn:aws:s3:::b"],
        ),
        (
            lambda s: s[0].update(Condition={"Bool": {"aws:SecureTransport": "true"}}),
            ["shortage s3:GetObject arn:aws:s3:::b/in/*",
             "shortage s3:GetObject arn:aws:s3:::b/code/*"],
        ),
        (
            lambda s: s.append(allow("s3:*", "arn:aws:s3:::b/in/*") | {"Effect": "Deny"}),
            ["shortage s3:GetObject arn:aws:s3:::b/in/*"],
        ),
        (lambda s: s.append(allow("iam:PassRole", "*")), ["excess iam:PassRole *"]),
    ],
)  # fmt: skip
def test_shortage_and_excess(change, expected):
    changed = copy.deepcopy(NEEDED)
    change(changed)
    assert told(NEEDED, changed) == expected


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(DefinitionError, match="NotAction and NotResource allow what nobody listed"):
        told(NEEDED, [{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}])
    with pytest.raises(DefinitionError, match="has no Statement"):
        compare({"Statement": []}, {"Version": "2012-10-17"})


# the command


def run(run_python, *arguments: str):
    return run_python("-m", "pipelines.permissions", *arguments)


@pytest.fixture
def demo(tmp_path: Path) -> list[str]:
    """A definition JSON file, and the options that say what it does not."""
    from tests.trainyard.emulator.harness import pipeline, process_step

    role = "arn:aws:iam::123456789012:role/demo"
    step = process_step("P", "true", outputs={"o": "s3://bkt/out"})
    step["Arguments"]["RoleArn"] = f"{role}-job"
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(pipeline([step])))
    names = ["--name", "demo", "--region", "eu-west-1", "--pipeline-role", role]
    return ["--definition", str(file), *names]


def test_a_policy_file_is_checked_without_aws_and_without_the_sdk(demo, tmp_path, run_python):
    printed = run(run_python, *demo, "--role", "job")
    assert printed.returncode == 0, printed.stderr
    assert "ecr:GetAuthorizationToken on *: the token is for the whole registry" in printed.stderr
    policy = json.loads(printed.stdout)
    file = tmp_path / "policy.json"

    file.write_text(json.dumps({"RoleName": "demo", "PolicyDocument": policy}))  # get-role-policy's
    fine = run(run_python, *demo, "--role", "job", "--check", str(file))
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "exactly what is needed (job)" in fine.stdout

    policy["Statement"].append(allow("s3:*", "*", Sid="Handy"))
    file.write_text(json.dumps(policy))
    over = run(run_python, *demo, "--role", "job", "--check", str(file))
    assert over.returncode == 1
    assert over.stdout.strip() == "job: excess Handy: s3:* on *"


def test_what_the_command_needs_it_asks_for(demo):
    file = {"definition": Path(demo[1])}
    whole = file | {"name": "d", "region": "eu-west-1", "pipeline_role": demo[-1]}
    for options, asked in (
        ({}, "give either --recipe FILE or --definition FILE"),
        (file, "give --name, --region and --pipeline-role"),
        (whole, "give --role job|pipeline|plan|ci|events, or --template"),
        (whole | {"role": "ci"}, "give --root s3://bucket/prefix"),
        (whole | {"check": Path("README.md"), "role": "job"}, "README.md: is no YAML or JSON"),
        (whole | {"check": Path("nowhere.json")}, "nowhere.json: cannot be read"),
        (whole | {"check": Path("pyproject.toml")}, "pyproject.toml: "),
    ):
        with pytest.raises(DefinitionError, match=re.escape(asked)):
            main(**options)


def test_no_policy_is_derived_from_a_definition_that_is_not_valid(demo):
    file = Path(demo[1])
    file.write_text(file.read_text().replace('"Type": "Processing", ', ""))
    with pytest.raises(DefinitionError, match=r"definition.json: \$.Steps\[0\].*Type.*says all"):
        main(definition=file, name="d", region="eu-west-1", pipeline_role=demo[-1], role="job")
