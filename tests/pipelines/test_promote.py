"""A package goes from dev to staging to prod: built once, verified three times, deployed once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.approve import approve
from pipelines.deploy import prepare_release
from pipelines.endpoint.rollout import deploy_release
from pipelines.promote import promote
from pipelines.recipe.read_recipe import load_recipe
from pipelines.registry.verification import verify
from tests.promotion import (
    BUCKETS,
    DEV,
    PACKAGE,
    PROD,
    STAGING,
    Accounts,
    registered_state,
    three_accounts,
)
from trainyard.common.errors import GateError

pytestmark = pytest.mark.long
WHY = "it was made small with --set"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return registered_state(tmp_path_factory.mktemp("registered"))


@pytest.fixture
def accounts(tmp_path: Path, state: Path) -> Iterator[Accounts]:
    with three_accounts(tmp_path, state, iam="enforce") as found:
        yield found


@pytest.mark.parametrize(
    "accounts_after",
    [(STAGING,), pytest.param((STAGING, PROD), marks=pytest.mark.sweep)],
    ids=["one hop", "to prod"],
)
def test_a_model_is_built_once_verified_in_each_account_and_deployed_once(
    accounts: Accounts, accounts_after: tuple[str, ...]
) -> None:
    with accounts.acting(DEV):
        with pytest.raises(GateError, match="--reason"):
            approve(PACKAGE)
        approve(PACKAGE, reason=WHY)
    package = PACKAGE
    for number in accounts_after:
        accounts.share(number)
        with accounts.acting(number, "promoter"):
            before, package = package, promote(package, accounts.sides(number))
            with pytest.raises(GateError, match="was promoted already"):
                promote(before, accounts.sides(number))
        assert package.split(":")[4] == number
        with accounts.acting(number):
            if accounts_after == (STAGING,):
                _refused_when_harmed(accounts, package)
            approve(package, reason=WHY)
    record, passed = _record(accounts, package), [DEV, *accounts_after]
    assert [hop["account"] for hop in record["hops"]] == passed[1:]
    assert [hop["approved_by"].split(":")[4] for hop in record["hops"]] == passed[:-1]
    assert [hop["verified_by"].split(":")[4] for hop in record["hops"]] == passed[1:]
    assert set(record["hops"][-1]["checks"].values()) == {"ok"}
    for number in passed[:-1]:  # what was promoted rests on nothing in the accounts before
        _empty(accounts, number)
    with accounts.acting(passed[-1]):
        found = verify(package)
    assert not [f for f in found if f.status == "mismatch"], found
    assert found[0].detail == " → ".join(passed)
    if accounts_after[-1] == PROD:
        assert _deploy_package(accounts, package)["bits_per_byte"] > 0


def _refused_when_harmed(accounts: Accounts, package: str) -> None:
    """Change one bit of the model, then of the record: neither is approved. Then restore both."""
    number = package.split(":")[4]
    shown = accounts.client(number, "sagemaker").describe_model_package(ModelPackageName=package)
    [container] = shown["InferenceSpecification"]["Containers"]
    s3, record = accounts.client(number, "s3"), shown["CustomerMetadataProperties"]["promotion_uri"]
    for uri, check in ((container["ModelDataUrl"], "artifact's bytes"), (record, "promotion")):
        where = dict(zip(("Bucket", "Key"), uri[5:].split("/", 1), strict=True))
        body = s3.get_object(**where)["Body"].read()
        s3.put_object(**where, Body=body[:100] + bytes([body[100] ^ 1]) + body[101:])
        with pytest.raises(GateError, match=f"{check} does not match"):
            approve(package, reason=WHY)
        s3.put_object(**where, Body=body)


def _record(accounts: Accounts, package: str) -> dict:
    number = package.split(":")[4]
    shown = accounts.client(number, "sagemaker").describe_model_package(ModelPackageName=package)
    uri = shown["CustomerMetadataProperties"]["promotion_uri"]
    bucket, key = uri[5:].split("/", 1)
    return json.loads(
        accounts.client(number, "s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    )


def _empty(accounts: Accounts, number: str) -> None:
    s3 = accounts.client(number, "s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKETS[number]):
        for one in page.get("Contents", ()):
            s3.delete_object(Bucket=BUCKETS[number], Key=one["Key"])


def _deploy_package(accounts: Accounts, package: str) -> dict:
    """Deploy the package in prod, and return the endpoint's answer."""
    recipe, said = load_recipe(accounts.recipe, [], "prod"), []
    with accounts.acting(PROD):
        outcome = deploy_release(prepare_release(package, recipe, quick=True), said.append)
    assert outcome.is_serving and said[-1] == "live: InService"
    answer = accounts.client(PROD, "sagemaker-runtime").invoke_endpoint(
        EndpointName="live", ContentType="application/json", Body=json.dumps({"text": "def f(x):"})
    )
    return json.loads(answer["Body"].read())
