"""A promotion between accounts, attacked in every way; honest variants pass.

Each attack is a combination of settings, chosen so that every possible pair occurs; it is undone
before the next. An attack passes if its package is registered in the target's account, or approved
there.
"""

import contextlib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import pipelines.promote
from pipelines.approve import approve
from pipelines.promote import promote
from pipelines.registry.champion import URI, build_copy_uri
from tests.pipelines.landing_zones.zones import pairwise
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
from tests.tamperings import harm_bytes
from trainyard.common.errors import TrainyardError

pytestmark = [pytest.mark.sweep, pytest.mark.slow, pytest.mark.timeout(900)]
WHY = "it was made small with --set"
STRANGER = "999999999999"
HOPS = {"dev to staging": STAGING, "staging to prod": PROD}
Row = Mapping[str, str]
"""Setting → its value."""


class Stage:
    """The accounts with an Approved package in dev and one in staging, and what harms it."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.packages = {STAGING: PACKAGE}
        with accounts.acting(DEV):
            approve(PACKAGE, reason=WHY)
        for number in (STAGING, PROD):
            accounts.share(number)
        self.packages[PROD] = self.promote_package(STAGING)
        with accounts.acting(STAGING):
            approve(self.packages[PROD], reason=WHY)
        accounts.client(STRANGER, "sagemaker")

    def promote_package(self, number: str) -> str:
        """Promote to an account; return the new package's ARN."""
        with self.accounts.acting(number, "promoter"), self.withdraw_promotion(number):
            return promote(self.packages[number], self.accounts.sides(number))

    @contextlib.contextmanager
    def withdraw_promotion(self, number: str) -> Iterator[None]:
        """Reject what was promoted to staging, until the block ends: nothing is promoted twice."""
        if number != STAGING or PROD not in self.packages:
            yield
            return
        sagemaker = self.accounts.client(STAGING, "sagemaker")
        arn = {"ModelPackageArn": self.packages[PROD]}
        sagemaker.update_model_package(**arn, ModelApprovalStatus="Rejected")
        try:
            yield
        finally:
            sagemaker.update_model_package(**arn, ModelApprovalStatus="Approved")

    def source(self, number: str) -> str:
        return {STAGING: DEV, PROD: STAGING}[number]

    def remove(self, arn: str) -> None:
        sagemaker = self.accounts.client(arn.split(":")[4], "sagemaker")
        sagemaker.delete_model_package(ModelPackageName=arn)

    def describe_package(self, arn: str) -> dict[str, Any]:
        sagemaker = self.accounts.client(arn.split(":")[4], "sagemaker")
        return sagemaker.describe_model_package(ModelPackageName=arn)

    def objects(self, number: str) -> dict[str, str]:
        """Return name of a kind of object → the URI that the promotion to ``number`` reads."""
        origin = self.describe_package(PACKAGE)
        quality = origin["ModelMetrics"]["ModelQuality"]
        evaluation = quality["Statistics"]["S3Uri"]
        record = json.loads(self.read(self.record))
        uris = list(record["objects"])
        found = {
            "model": origin["InferenceSpecification"]["Containers"][0]["ModelDataUrl"],
            "evaluation": evaluation,
            "verdict": quality["Constraints"]["S3Uri"],
            "provenance": origin["CustomerMetadataProperties"]["provenance_uri"],
            "scores": next(uri for uri in uris if uri.endswith(".parquet")),
            "recipe": next(uri for uri in uris if uri.endswith("/recipe.json")),
            "code": random.Random(number).choice([uri for uri in uris if uri.endswith(".py")]),
        }
        if number == STAGING:
            return found
        folder = self.record.rpartition("/")[0]
        return {name: build_copy_uri(folder, uri) for name, uri in found.items()} | {
            "record": self.record
        }

    @property
    def record(self) -> str:
        """URI of staging's promotion.json."""
        return self.describe_package(self.packages[PROD])["CustomerMetadataProperties"][URI]

    def read(self, uri: str) -> bytes:
        return self._s3(uri).get_object(**_place(uri))["Body"].read()

    def write(self, uri: str, body: bytes, **how: str) -> None:
        self._s3(uri).put_object(**_place(uri), Body=body, **how)

    def _s3(self, uri: str) -> Any:
        owners = {bucket: number for number, bucket in BUCKETS.items()}
        return self.accounts.client(owners[_place(uri)["Bucket"]], "s3")


def _place(uri: str) -> dict[str, str]:
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    return {"Bucket": bucket, "Key": key}


Attack = Callable[[Stage, Row], str]
"""Harms, promotes, restores; returns the package's ARN if the attack passed."""


@contextlib.contextmanager
def _replace_object(stage: Stage, uri: str, kind: str) -> Iterator[None]:
    body = stage.read(uri)
    stage.write(uri, body + b"\n" if kind == "additional byte" else harm_bytes(body, kind))
    try:
        yield
    finally:
        stage.write(uri, body)


def replaced_bytes(stage: Stage, row: Row) -> str:
    number = HOPS[row["hop"]]
    uris = stage.objects(number)
    uri = uris.get(row["object"], uris["model"])
    if row["when"] == "before":
        with _replace_object(stage, uri, row["kind"]):
            return stage.promote_package(number)
    if row["when"] == "on the way":
        return _on_the_way(stage, number, uri, row["kind"])
    copy = stage.objects(PROD).get(row["object"], stage.record)  # of staging's package
    package = stage.packages[PROD]
    sagemaker = stage.accounts.client(STAGING, "sagemaker")
    sagemaker.update_model_package(
        ModelPackageArn=package, ModelApprovalStatus="PendingManualApproval"
    )
    try:
        with _replace_object(stage, copy, row["kind"]), stage.accounts.acting(STAGING):
            return approve(package, reason=WHY).package
    finally:
        with stage.accounts.acting(STAGING):
            approve(package, reason=WHY)


def _on_the_way(stage: Stage, number: str, uri: str, kind: str) -> str:
    """Replace a copy between copying and registering."""
    copies = pipelines.promote._copy_objects
    folder: list[str] = []

    def copy_with_harm(s3: Any, evidence: Any, uris: Any, into: str, key: Any) -> None:
        copies(s3, evidence, uris, into, key)
        named = stage.describe_package(PACKAGE)
        model = named["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]
        known = [one for one in uris if build_copy_uri(into, one).endswith(_place(uri)["Key"])]
        target = build_copy_uri(into, next((k for k in known), model))
        folder.append(into)
        stage.write(
            target, harm_bytes(stage.read(target), "flipped bit" if "add" in kind else kind)
        )

    pipelines.promote._copy_objects = copy_with_harm
    try:
        return stage.promote_package(number)
    finally:
        pipelines.promote._copy_objects = copies


def wrong_account(stage: Stage, row: Row) -> str:
    number = HOPS[row["hop"]]
    right = stage.packages[number]
    package = {
        "right": right,
        "of another account": right.replace(f":{right.split(':')[4]}:", f":{STRANGER}:"),
        "of another group": right.replace("/trainyard-laptop/", "/of-others/"),
        "of a longer name": right.replace("/trainyard-laptop/", "/trainyard-laptop-2/"),
        "of the target": right.replace(f":{right.split(':')[4]}:", f":{number}:"),
    }[row["package"]]
    sides = stage.accounts.sides(number)
    assert sides.target.promotion is not None
    source = stage.source(number)
    role = {
        "right": sides.target.promotion.reader,
        "of another account": f"arn:aws:iam::{STRANGER}:role/reader",
        "missing": f"arn:aws:iam::{source}:role/missing",
    }[row["reader"]]
    section = sides.target.promotion.model_copy(update={"reader": role})
    sides = replace(sides, target=sides.target.model_copy(update={"promotion": section}))
    who = {"target": number, "source": source, "another": STRANGER}[row["caller"]]
    if (row["package"], row["reader"], row["caller"]) == ("right", "right", "target"):
        package = right.rpartition("/")[0] + "/77"  # a version that does not exist
    with (
        stage.withdraw_promotion(number),
        stage.accounts.acting(who, "promoter" if who == number else ""),
    ):
        return promote(package, sides)


DATA = yaml.safe_load(
    Path(__file__)
    .with_name("promotion_attacks.yaml")
    .read_text(encoding="utf-8")
    .replace("DEV", DEV)
)
PRINCIPALS, CONDITIONS, SERVICES, ACTIONS = (
    DATA[name] for name in ("principals", "conditions", "services", "actions")
)


@contextlib.contextmanager
def _policy(stage: Stage, number: str, where: str, statement: dict[str, Any]) -> Iterator[None]:
    """Add a statement to a policy on the way, until the block ends."""
    way = stage.accounts.sides(number).route
    client = stage.accounts.client
    sagemaker, s3, iam = (client(way.source, name) for name in ("sagemaker", "s3", "iam"))
    group = {"ModelPackageGroupName": way.group.rpartition("/")[2]}

    def add_policy_statement(text: Any) -> str:
        before = json.loads(text) if isinstance(text, str) else text
        return json.dumps({**before, "Statement": [*before["Statement"], statement]})

    if where == "group":
        statement |= {"Resource": [way.group, f"{way.group.replace('-group/', '/')}/*"]}
        empty = {"Version": "2012-10-17", "Statement": []}
        sagemaker.put_model_package_group_policy(
            **group, ResourcePolicy=add_policy_statement(empty)
        )
        undo = lambda: sagemaker.delete_model_package_group_policy(**group)  # noqa: E731
    elif where == "bucket":
        arn, own = f"arn:aws:s3:::{way.bucket}", {"Bucket": way.bucket}
        statement |= {"Resource": [arn, f"{arn}/*"]}
        before = s3.get_bucket_policy(**own)["Policy"]
        s3.put_bucket_policy(**own, Policy=add_policy_statement(before))
        undo = lambda: s3.put_bucket_policy(**own, Policy=before)  # noqa: E731
    else:
        role = {"RoleName": way.reader.rpartition("/")[2]}
        trust = iam.get_role(**role)["Role"]["AssumeRolePolicyDocument"]
        iam.update_assume_role_policy(**role, PolicyDocument=add_policy_statement(trust))
        said = json.dumps(trust)
        undo = lambda: iam.update_assume_role_policy(**role, PolicyDocument=said)  # noqa: E731
    try:
        yield
    finally:
        undo()


def wide_policy(stage: Stage, row: Row) -> str:
    return _let_in(stage, row, PRINCIPALS[row["principal"]], CONDITIONS[row["condition"]])


def confused_deputy(stage: Stage, row: Row) -> str:
    service = {"Service": f"{row['service']}.amazonaws.com"}
    return _let_in(stage, row, service, SERVICES[row["condition"]])


def _let_in(stage: Stage, row: Row, principal: Any, condition: dict[str, Any]) -> str:
    """Promote while the policy of ``row["where"]`` lets the principal in."""
    statement = {"Effect": "Allow", "Principal": principal,
                 "Action": ACTIONS[row["where"]][row["action"]],
                 "Condition": condition}  # fmt: skip
    number = HOPS[row["hop"]]
    with _policy(stage, number, row["where"], statement):
        return stage.promote_package(number)


def unusable_key(stage: Stage, row: Row) -> str:
    number = HOPS[row["hop"]]
    source = stage.source(number)
    promoter = f"arn:aws:iam::{number}:role/promoter"
    kms = stage.accounts.client(source, "kms")
    root = {"Effect": "Allow", "Principal": {"AWS": source}, "Action": "kms:*", "Resource": "*"}
    others = [
        {**root, "Principal": {"AWS": promoter}, **one}
        if "Effect" not in one
        else {**root, **one, "Condition": {"StringNotEquals": {"aws:PrincipalAccount": source}}}
        for one in DATA["key policies"][row["policy"]]
    ]
    if row["policy"] == "names another role":
        others[0]["Principal"] = {"AWS": f"{promoter}-2"}
    document = {"Version": "2012-10-17", "Statement": [root, *others]}
    key = kms.create_key(Policy=json.dumps(document))["KeyMetadata"]["Arn"]
    own = stage.accounts.client(number, "iam")
    grant = {"Effect": "Allow", "Action": "kms:*", "Resource": "*"}
    allow = json.dumps({"Version": "2012-10-17", "Statement": [grant]})
    named = {"RoleName": "promoter", "PolicyName": "keys"}
    if row["promoter"] == "may use any key":
        own.put_role_policy(**named, PolicyDocument=allow)
    uri = stage.objects(number)[row["object"]]
    body = stage.read(uri)
    stage.write(uri, body, ServerSideEncryption="aws:kms", SSEKMSKeyId=key)
    try:
        return stage.promote_package(number)
    finally:
        stage.write(uri, body)
        if row["promoter"] == "may use any key":
            own.delete_role_policy(**named)


def wrong_approval(stage: Stage, row: Row) -> str:
    number = HOPS[row["hop"]]
    package, source = stage.packages[number], stage.source(number)
    group = {"ModelPackageGroupName": "trainyard-laptop"}
    owner = stage.accounts.client(source, "sagemaker")
    who = {"another account": STRANGER, "the target": number, "a role that may not": source}
    how = "PendingManualApproval" if row["what"].startswith("leaves") else "Approved"
    arn = f"{package.rpartition('/')[0]}/*"
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sagemaker:*", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    sides = stage.accounts.sides(number)
    assert sides.target.promotion is not None
    section = sides.target.promotion.model_copy(
        update={"approvers": (f"arn:aws:iam::{source}:role/approver",)}
    )
    if row["approvers"] == "named" or who[row["by"]] == source:
        sides = replace(sides, target=sides.target.model_copy(update={"promotion": section}))
    try:
        if row["what"] == "approves what was rejected":
            owner.update_model_package(ModelPackageArn=package, ModelApprovalStatus="Rejected")
        owner.put_model_package_group_policy(**group, ResourcePolicy=policy)
        theirs = stage.accounts.client(who[row["by"]], "sagemaker")
        theirs.update_model_package(ModelPackageArn=package, ModelApprovalStatus=how)
        owner.delete_model_package_group_policy(**group)
        with stage.accounts.acting(number, "promoter"), stage.withdraw_promotion(number):
            return promote(package, sides)
    finally:
        owner.delete_model_package_group_policy(**group)
        owner.update_model_package(ModelPackageArn=package, ModelApprovalStatus="Approved")


def honest(stage: Stage, row: Row) -> str:
    number = HOPS[row["hop"]]
    way = stage.accounts.sides(number).route
    organization = {"StringEquals": {"aws:PrincipalOrgID": "o-1234567890"}}
    mine = {"StringEquals": {"aws:SourceAccount": way.source}}
    service, read = {"Service": "sagemaker.amazonaws.com"}, "s3:GetObject"
    statements = {
        "nothing more": None,
        "the organization": {"Principal": "*", "Condition": organization},
        "own account": {"Principal": {"AWS": way.source}},
        "a service for itself": {"Principal": service, "Condition": mine},
        "others may read": {"Principal": {"AWS": STRANGER}, "Action": read},
    }
    extra = statements[row["policy"]]
    if extra is None or (row["where"] != "bucket" and "Action" in extra):
        return stage.promote_package(number)
    action = ACTIONS[row["where"]]["all"]
    statement = {"Effect": "Allow", "Action": action, "Condition": {}, **extra}
    with _policy(stage, number, row["where"], statement):
        return stage.promote_package(number)


ATTACKS: dict[str, Attack] = {"bytes": replaced_bytes, "account": wrong_account,
                              "policy": wide_policy, "deputy": confused_deputy, "key": unusable_key,
                              "approval": wrong_approval, "honest": honest}  # fmt: skip


def outcome(stage: Stage, family: str, row: Row) -> str:
    """Run one attack; return what is wrong: that it passed, or that an honest one did not."""
    try:
        arn, said = ATTACKS[family](stage, row), ""
    except TrainyardError as refusal:
        arn, said = "", str(refusal)
    if arn and arn not in stage.packages.values():
        stage.remove(arn)
    assert "promoted already" not in said, f"{row} shows nothing: {said}"
    if bool(arn) == (family == "honest"):
        return ""
    return f"passed as {arn}" if arn else f"an honest one is refused: {said}"


def rows(family: str) -> list[Row]:
    """The combinations of a family's settings."""
    known = DATA["families"][family]
    return pairwise({"hop": list(HOPS)} | known["settings"], known["number"], 0)


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("accounts")
    with three_accounts(folder, registered_state(folder), iam="enforce") as accounts:
        yield Stage(accounts)


@pytest.mark.parametrize(
    ("family", "number"), [(name, n) for name in ATTACKS for n in range(len(rows(name)))]
)
def test_no_attack_passes_and_every_honest_variant_does(family: str, number: int, stage: Stage):
    row = rows(family)[number]
    assert outcome(stage, family, row) == "", row
