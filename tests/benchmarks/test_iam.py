"""The benchmark of the derived roles: what it calls needed, and that prod.yaml's roles suffice."""

import pytest

from benchmarks.harness import CHECKOUT
from benchmarks.iam.__main__ import ARNS, NAMES, OWN, Trial, judge_trials
from benchmarks.iam.derived_requests import DERIVED_CALLS
from pipelines.infrastructure.serving_roles import build_recipe_subject
from trainyard.emulator.iam.account_policies import make_session_principal
from trainyard.permissions.policy_evaluation import Request
from trainyard.permissions.role_template import derive_policy

READ = {"Sid": "Read", "Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["*"]}
LIST = READ | {"Sid": "List", "Action": ["s3:ListBucket"]}


def test_a_statement_without_which_nothing_is_denied_is_not_needed():
    nothing = {"Statement": []}
    policies = dict.fromkeys(NAMES, nothing) | {"job": {"Statement": [READ, LIST]}}
    trial = Trial("r.yaml", policies)
    trial.calls["job"] = [
        Request(make_session_principal("arn:aws:iam::1:role/r"), "s3:GetObject", "x")
    ]
    section = judge_trials([trial])
    assert section.rows == [("r.yaml", "1", "0", "1", "2", "1")]
    assert section.notes == ["r.yaml, job: List is not needed"]
    assert [target.is_met for target in section.targets] == [True, False]


@pytest.mark.long
def test_the_roles_of_a_recipe_that_is_too_large_to_run_suffice_and_are_needed():
    subject = build_recipe_subject(CHECKOUT / "recipes/prod.yaml", OWN)
    roles = ("job", "pipeline", "events")
    policies = {role: derive_policy(subject, role) for role in roles}
    trial = Trial("prod", policies | {"plan": {"Statement": []}, "ci": {"Statement": []}})
    for role in roles:
        trial.calls[role] = DERIVED_CALLS[role](subject, ARNS[role])
    section = judge_trials([trial])
    assert section.notes == []
    assert all(target.is_met for target in section.targets)
