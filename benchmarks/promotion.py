"""Attack a promotion between accounts in every way, and count what passes.

python -m benchmarks.promotion [--seed 0] [--only bytes,policy] [--out FILE.json]

Each attack is a combination of settings, chosen so that every possible pair occurs; it is undone
before the next. An attack passes if its package is registered in the target's account, or approved
there. Honest variants must pass.
"""

import contextlib
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

import pipelines.promote
from benchmarks.landing_zones.generated import pairwise
from benchmarks.tamperings import harmed
from pipelines.approve import approve
from pipelines.promote import promote
from pipelines.registry.champion import URI, copy_of
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
from trainyard.common.errors import TrainyardError
from trainyard.terminal import console, run

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
        self.packages[PROD] = self.promoted(STAGING)
        with accounts.acting(STAGING):
            approve(self.packages[PROD], reason=WHY)
        accounts.client(STRANGER, "sagemaker")

    def promoted(self, number: str) -> str:
        """Promote to an account; return the new package's ARN."""
        with self.accounts.acting(number, "promoter"), self.unpromoted(number):
            return promote(self.packages[number], self.accounts.sides(number))

    @contextlib.contextmanager
    def unpromoted(self, number: str) -> Iterator[None]:
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

    def described(self, arn: str) -> dict[str, Any]:
        sagemaker = self.accounts.client(arn.split(":")[4], "sagemaker")
        return sagemaker.describe_model_package(ModelPackageName=arn)

    # objects

    def objects(self, number: str) -> dict[str, str]:
        """Return name of a kind of object → the URI that the promotion to ``number`` reads."""
        origin = self.described(PACKAGE)
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
        return {name: copy_of(folder, uri) for name, uri in found.items()} | {"record": self.record}

    @property
    def record(self) -> str:
        """URI of staging's promotion.json."""
        return self.described(self.packages[PROD])["CustomerMetadataProperties"][URI]

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


# bytes


@contextlib.contextmanager
def _replaced(stage: Stage, uri: str, kind: str) -> Iterator[None]:
    body = stage.read(uri)
    stage.write(uri, body + b"\n" if kind == "additional byte" else harmed(body, kind))
    try:
        yield
    finally:
        stage.write(uri, body)


def replaced_bytes(stage: Stage, row: Row) -> str:
    number = HOPS[row["hop"]]
    uris = stage.objects(number)
    uri = uris.get(row["object"], uris["model"])
    if row["when"] == "before":
        with _replaced(stage, uri, row["kind"]):
            return stage.promoted(number)
    if row["when"] == "on the way":
        return _on_the_way(stage, number, uri, row["kind"])
    copy = stage.objects(PROD).get(row["object"], stage.record)  # of staging's package
    package = stage.packages[PROD]
    sagemaker = stage.accounts.client(STAGING, "sagemaker")
    sagemaker.update_model_package(
        ModelPackageArn=package, ModelApprovalStatus="PendingManualApproval"
    )
    try:
        with _replaced(stage, copy, row["kind"]), stage.accounts.acting(STAGING):
            return approve(package, reason=WHY).package
    finally:
        with stage.accounts.acting(STAGING):
            approve(package, reason=WHY)


def _on_the_way(stage: Stage, number: str, uri: str, kind: str) -> str:
    """Replace a copy between copying and registering."""
    copies = pipelines.promote._copy
    folder: list[str] = []

    def copied(s3: Any, evidence: Any, uris: Any, into: str, key: Any) -> None:
        copies(s3, evidence, uris, into, key)
        named = stage.described(PACKAGE)
        model = named["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]
        known = [one for one in uris if copy_of(into, one).endswith(_place(uri)["Key"])]
        target = copy_of(into, next((k for k in known), model))
        folder.append(into)
        stage.write(target, harmed(stage.read(target), "flipped bit" if "add" in kind else kind))

    pipelines.promote._copy = copied
    try:
        return stage.promoted(number)
    finally:
        pipelines.promote._copy = copies


# accounts


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
        stage.unpromoted(number),
        stage.accounts.acting(who, "promoter" if who == number else ""),
    ):
        return promote(package, sides)


# policies

PRINCIPALS: dict[str, Any] = {
    "everybody": "*",
    "every account": {"AWS": "*"},
    "another root": {"AWS": f"arn:aws:iam::{STRANGER}:root"},
    "another number": {"AWS": STRANGER},
    "another role": {"AWS": f"arn:aws:iam::{STRANGER}:role/any"},
    "one more in a list": {"AWS": [f"arn:aws:iam::{DEV}:root", STRANGER]},
}
CONDITIONS: dict[str, Any] = {
    "none": {},
    "not an account": {"StringNotEquals": {"aws:PrincipalAccount": "111111111111"}},
    "if it exists": {"StringEqualsIfExists": {"aws:SourceVpc": "vpc-1"}},
    "any arn": {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/*"}},
    "any account": {"StringLike": {"aws:PrincipalAccount": "*"}},
}
SERVICES = {
    "none": {},
    "any source": {"ArnLike": {"aws:SourceArn": "arn:aws:sagemaker:*:*:*"}},
    "another account": {"StringEquals": {"aws:SourceAccount": "000000000000"}},
    "not an account": {"StringNotEquals": {"aws:SourceAccount": "111111111111"}},
    "if it exists": {"StringEqualsIfExists": {"aws:SourceVpc": "vpc-1"}},
}
ACTIONS: dict[str, dict[str, Any]] = {
    "group": {"one": "sagemaker:UpdateModelPackage", "some": "sagemaker:*Model*", "all": "*"},
    "bucket": {"one": "s3:PutObject", "some": "s3:Put*", "all": "s3:*"},
    "trust": {
        "one": "sts:AssumeRole",
        "some": ["sts:AssumeRole", "sts:AssumeRoleWithSAML"],
        "all": ["sts:AssumeRole", "sts:AssumeRoleWithSAML", "sts:AssumeRoleWithWebIdentity"],
    },
}


@contextlib.contextmanager
def _policy(stage: Stage, number: str, where: str, statement: dict[str, Any]) -> Iterator[None]:
    """Add a statement to a policy on the way, until the block ends."""
    way = stage.accounts.sides(number).way
    client = stage.accounts.client
    sagemaker, s3, iam = (client(way.source, name) for name in ("sagemaker", "s3", "iam"))
    group = {"ModelPackageGroupName": way.group.rpartition("/")[2]}

    def whole(text: Any) -> str:
        before = json.loads(text) if isinstance(text, str) else text
        return json.dumps({**before, "Statement": [*before["Statement"], statement]})

    empty = {"Version": "2012-10-17", "Statement": []}
    if where == "group":
        package = f"{way.group.replace('-group/', '/')}/*"
        statement |= {"Resource": [way.group, package]}
        sagemaker.put_model_package_group_policy(**group, ResourcePolicy=whole(empty))
        try:
            yield
        finally:
            sagemaker.delete_model_package_group_policy(**group)
    elif where == "bucket":
        arn = f"arn:aws:s3:::{way.bucket}"
        statement |= {"Resource": [arn, f"{arn}/*"]}
        before = s3.get_bucket_policy(Bucket=way.bucket)["Policy"]
        s3.put_bucket_policy(Bucket=way.bucket, Policy=whole(before))
        try:
            yield
        finally:
            s3.put_bucket_policy(Bucket=way.bucket, Policy=before)
    else:
        role = {"RoleName": way.reader.rpartition("/")[2]}
        trust = iam.get_role(**role)["Role"]["AssumeRolePolicyDocument"]
        iam.update_assume_role_policy(**role, PolicyDocument=whole(trust))
        try:
            yield
        finally:
            iam.update_assume_role_policy(**role, PolicyDocument=json.dumps(trust))


def wide_policy(stage: Stage, row: Row) -> str:
    return _let_in(stage, row, PRINCIPALS[row["principal"]], CONDITIONS[row["condition"]])


def confused_deputy(stage: Stage, row: Row) -> str:
    service = {"Service": f"{row['service']}.amazonaws.com"}
    return _let_in(stage, row, service, SERVICES[row["condition"]])


def _let_in(stage: Stage, row: Row, principal: Any, condition: dict[str, Any]) -> str:
    """Promote while the policy of ``row["where"]`` lets the principal in."""
    statement = {
        "Effect": "Allow",
        "Principal": principal,
        "Action": ACTIONS[row["where"]][row["action"]],
        "Condition": condition,
    }
    number = HOPS[row["hop"]]
    with _policy(stage, number, row["where"], statement):
        return stage.promoted(number)


# keys


def unusable_key(stage: Stage, row: Row) -> str:
    number = HOPS[row["hop"]]
    source = stage.source(number)
    promoter = f"arn:aws:iam::{number}:role/promoter"
    kms = stage.accounts.client(source, "kms")
    root = {"Effect": "Allow", "Principal": {"AWS": source}, "Action": "kms:*", "Resource": "*"}
    others = {
        "says nothing": [],
        "names another role": [{**root, "Principal": {"AWS": f"{promoter}-2"}}],
        "lets encrypt only": [{**root, "Principal": {"AWS": promoter}, "Action": "kms:Encrypt"}],
        "lets describe only": [{**root, "Principal": {"AWS": promoter}, "Action": "kms:Describe*"}],
        "denies": [
            {**root, "Principal": {"AWS": promoter}, "Action": "kms:Decrypt"},
            {**root, "Principal": "*", "Action": "kms:Decrypt", "Effect": "Deny",
             "Condition": {"StringNotEquals": {"aws:PrincipalAccount": source}}},
        ],
    }  # fmt: skip
    document = {"Version": "2012-10-17", "Statement": [root, *others[row["policy"]]]}
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
        return stage.promoted(number)
    finally:
        stage.write(uri, body)
        if row["promoter"] == "may use any key":
            own.delete_role_policy(**named)


# approvals


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
        with stage.accounts.acting(number, "promoter"), stage.unpromoted(number):
            return promote(package, sides)
    finally:
        owner.delete_model_package_group_policy(**group)
        owner.update_model_package(ModelPackageArn=package, ModelApprovalStatus="Approved")


# honest variants


def honest(stage: Stage, row: Row) -> str:
    number = HOPS[row["hop"]]
    way = stage.accounts.sides(number).way
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
        return stage.promoted(number)
    action = ACTIONS[row["where"]]["all"]
    statement = {"Effect": "Allow", "Action": action, "Condition": {}, **extra}
    with _policy(stage, number, row["where"], statement):
        return stage.promoted(number)


EITHER = list(HOPS)
FAMILIES: dict[str, tuple[Attack, dict[str, list[str]], int]] = {
    "bytes": (replaced_bytes, {
        "hop": EITHER, "when": ["before", "on the way", "after"],
        "object": ["model", "evaluation", "verdict", "provenance", "scores", "recipe", "code",
                   "record"],
        "kind": ["flipped bit", "truncation", "swap of equal length", "additional byte"]}, 50),
    "account": (wrong_account, {
        "hop": EITHER, "caller": ["target", "source", "another"],
        "package": ["right", "of another account", "of another group", "of a longer name",
                    "of the target"],
        "reader": ["right", "of another account", "missing"]}, 25),
    "policy": (wide_policy, {
        "hop": EITHER, "where": list(ACTIONS), "principal": list(PRINCIPALS),
        "action": ["one", "some", "all"], "condition": list(CONDITIONS)}, 50),
    "deputy": (confused_deputy, {
        "hop": EITHER, "where": list(ACTIONS), "action": ["one", "some", "all"],
        "service": ["sagemaker", "events", "lambda", "cloudformation"],
        "condition": list(SERVICES)}, 35),
    "key": (unusable_key, {
        "hop": EITHER, "object": ["model", "evaluation", "scores", "code"],
        "promoter": ["may use any key", "as derived"],
        "policy": ["says nothing", "names another role", "lets encrypt only",
                   "lets describe only", "denies"]}, 25),
    "approval": (wrong_approval, {
        "hop": EITHER, "by": ["another account", "the target", "a role that may not"],
        "approvers": ["anybody there", "named"],
        "what": ["approves", "approves what was rejected", "leaves it pending"]}, 20),
    "honest": (honest, {
        "hop": EITHER, "where": list(ACTIONS),
        "policy": ["nothing more", "the organization", "own account", "a service for itself",
                   "others may read"]}, 15),
}  # fmt: skip
"""Family → (attack, settings and their values, number of combinations)."""


def tried(stage: Stage, family: str, row: Row) -> dict[str, Any]:
    """Return one attack's result."""
    began = time.perf_counter()
    try:
        arn, said = FAMILIES[family][0](stage, row), ""
    except TrainyardError as refusal:
        arn, said = "", str(refusal)
    if arn and arn not in stage.packages.values():
        stage.remove(arn)
    seconds = round(time.perf_counter() - began, 2)
    assert "promoted already" not in said, f"{row} shows nothing: {said}"
    return {"family": family, **row, "passed": bool(arn), "said": said, "seconds": seconds}


def main(
    seed: int = 0,
    only: Annotated[str, typer.Option(help="Families, with commas.")] = ",".join(FAMILIES),
    out: Annotated[Path | None, typer.Option(help="Write every attack's result here.")] = None,
) -> None:
    """Attack promotions, and count what passes."""
    results = []
    with (
        tempfile.TemporaryDirectory() as folder,
        three_accounts(Path(folder), registered_state(Path(folder)), iam="enforce") as accounts,
    ):
        stage = Stage(accounts)
        for family in only.split(","):
            _, axes, number = FAMILIES[family]
            for count, row in enumerate(pairwise(axes, number, seed), 1):
                results.append(tried(stage, family, row))
                if results[-1]["passed"] != (family == "honest"):
                    console.print(results[-1], markup=False)
                console.print(f"{family} {count} of {number}", end="\r")
    if out:
        out.write_text(json.dumps(results, indent=1))
    table = Table("family", "tried", "passed", "median s", box=None)
    for family, tries in Counter(one["family"] for one in results).items():
        mine = [one for one in results if one["family"] == family]
        seconds = sorted(one["seconds"] for one in mine)[tries // 2]
        table.add_row(family, str(tries), str(sum(one["passed"] for one in mine)), f"{seconds:.1f}")
    console.print(table)


if __name__ == "__main__":
    run(main)
