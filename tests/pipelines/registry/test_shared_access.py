"""The policies of a promotion: all that both sides need, of the accounts that the recipe names."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest

from pipelines.promote import read_both_environments
from pipelines.registry.shared_access import PromotionRoute, build_policies, refuse_unknown_accounts
from tests.conftest import call_module
from tests.promotion import DEV, NAMES, PROD, STAGING, recipe_in
from trainyard.common.errors import GateError, RecipeError
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.server import serve_emulator

ROLE = f"arn:aws:iam::{STAGING}:role/promoter"


@pytest.fixture
def way(tmp_path: Path) -> PromotionRoute:
    return read_both_environments(recipe_in(tmp_path), [], NAMES[STAGING]).route


def test_each_role_has_its_trust_and_its_policy(tmp_path: Path):
    words = ("--policies", ROLE, "--recipe", str(recipe_in(tmp_path)), "--env", "staging")
    done = call_module("pipelines.promote", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    roles = (ROLE, f"arn:aws:iam::{DEV}:role/reader")
    buckets = {name for name in found if name.startswith("bucket ")}
    assert buckets and {*found} - buckets == {
        f"{role}: {what}" for role in roles for what in ("trust", "policy")
    }
    [trust] = found[f"{ROLE}: trust"]["Statement"]
    assert trust["Principal"] == {"AWS": f"arn:aws:iam::{STAGING}:root"}


def test_iam_takes_each_policy(
    way: PromotionRoute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = build_policies(way, ROLE)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with serve_emulator(tmp_path / "aws") as endpoint, apply_environment(endpoint.env):
        iam = boto3.client("iam")
        for name in ("reader", "promoter"):
            arn = ROLE if name == "promoter" else way.reader
            trust, own = (json.dumps(found[f"{arn}: {what}"]) for what in ("trust", "policy"))
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)
            iam.put_role_policy(RoleName=name, PolicyName="promotion", PolicyDocument=own)


def test_a_promoter_of_another_account_is_refused(way: PromotionRoute):
    said = f"is not a role of account {STAGING}, .* such as arn:aws:iam::{STAGING}:role/promoter"
    with pytest.raises(RecipeError, match=said):
        build_policies(way, f"arn:aws:iam::{PROD}:role/promoter")


def test_a_group_of_another_account_has_a_policy_too(way: PromotionRoute):
    group = f"arn:aws:sagemaker:us-east-1:{PROD}:model-package-group/shared"
    found = build_policies(replace(way, into=replace(way.into, group=group)), ROLE)
    [create, *_] = found[f"group {group}"]["Statement"]
    assert create["Principal"] == {"AWS": ROLE}
    assert "sagemaker:CreateModelPackage" in create["Action"]
    assert create["Resource"] == f"arn:aws:sagemaker:us-east-1:{PROD}:model-package/shared/*"


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_a_bucket_that_everybody_may_read_is_refused_in_every_partition(way, partition):
    """The clients return the documents of accounts that no emulator has: those of a partition."""
    prefix, source = f"arn:{partition}", {"Effect": "Allow", "Action": "*", "Resource": "*"}
    source["Principal"] = {"AWS": f"{prefix}:iam::{way.source}:root"}
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:PutObject",
                 "Resource": f"{prefix}:s3:::{way.bucket}/*"}  # fmt: skip
    group, bucket = (json.dumps({"Statement": [one]}) for one in (source, everybody))
    route = replace(
        way,
        group=way.group.replace("arn:aws", prefix),
        reader=way.reader.replace("arn:aws", prefix),
    )
    clients = (
        SimpleNamespace(get_model_package_group_policy=lambda **_: {"ResourcePolicy": group}),
        SimpleNamespace(get_bucket_policy=lambda **_: {"Policy": bucket}),
        SimpleNamespace(get_role=lambda **_: {"Role": {"AssumeRolePolicyDocument": group}}),
    )
    with pytest.raises(GateError, match=f"bucket {way.bucket}.* lets everybody do s3:PutObject"):
        refuse_unknown_accounts(route, *clients)
