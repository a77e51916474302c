"""Several accounts in one emulator: each has its own resources, and policies join them."""

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, cloud, pipeline, process_step
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.sagemaker.pruning import plan_pruning

pytestmark = pytest.mark.long

Account = Callable[[str], Any]
"""Returns clients of an account by their service."""
OWN, PROD, OTHER = "123456789012", "222222222222", "333333333333"
OUT = "s3://bkt/out"
ENTRY = "arn:aws:iam::{}:role/OrganizationAccountAccessRole"
MODEL = {"Containers": [{"Image": "a/b:1", "ModelDataUrl": "s3://of-prod/model.tar.gz"}]}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("aws")) as started:
        yield started


def session(aws: Cloud, role: str, by: Account | None = None) -> Account:
    """Return the clients of a session of the role, assumed by ``by`` or by the emulator's user."""
    sts = by("sts") if by else make_client(aws.endpoint, "sts")
    given = sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    keys = [given[name] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
    return functools.partial(make_client, aws.endpoint, keys=keys)


def enter_account(aws: Cloud, number: str) -> Account:
    return session(aws, ENTRY.format(number))


def read_denial(call: Callable[[], Any], code: str = "AccessDenied") -> str:
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["Error"]["Code"].startswith(code)
    return caught.value.response["Error"]["Message"]


def create(sm: Any, steps: list[dict], **more: str) -> dict:
    text = json.dumps(pipeline(steps))
    token = {"ClientRequestToken": "t" * 32}
    return sm.create_pipeline(PipelineName="p", PipelineDefinition=text, **token, **more)


def allow(action: str | list[str], resource: str | list[str], **principal: str) -> str:
    statement = {"Effect": "Allow", "Principal": principal, "Action": action, "Resource": resource}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def trusting(principal: str) -> str:
    trust = json.loads(allow("sts:AssumeRole", "*", AWS=principal))
    del trust["Statement"][0]["Resource"]
    return json.dumps(trust)


def test_a_pipeline_runs_in_the_account_of_its_client(tmp_path: Path) -> None:
    ask = "aws sts get-caller-identity --query Account --output text"
    script = f"{ask} > /opt/ml/processing/out/number"
    role = {"RoleArn": f"arn:aws:iam::{PROD}:role/any"}
    steps = [process_step("one", script, outputs={"out": "s3://of-prod/out"}, arguments=role)]
    with cloud(tmp_path) as aws:
        prod = enter_account(aws, PROD)
        prod("s3").create_bucket(Bucket="of-prod")
        sm = prod("sagemaker")
        made = create(sm, steps, **role)
        assert made["PipelineArn"] == f"arn:aws:sagemaker:us-east-1:{PROD}:pipeline/p"
        arn = sm.start_pipeline_execution(PipelineName="p")["PipelineExecutionArn"]
        assert aws.endpoint.wait(arn)["PipelineExecutionStatus"] == "Succeeded"
        body = prod("s3").get_object(Bucket="of-prod", Key="out/number")["Body"]
        assert body.read() == f"{PROD}\n".encode()
        assert not aws.sm.list_pipelines()["PipelineSummaries"]
        logs = prod("logs").describe_log_groups()["logGroups"]
        assert {group["arn"].split(":")[4] for group in logs} == {PROD}
        assert not aws.logs.describe_log_groups()["logGroups"]
    with cloud(tmp_path) as aws:
        found = enter_account(aws, PROD)("sagemaker").list_pipelines()["PipelineSummaries"]
        assert [one["PipelineArn"] for one in found] == [made["PipelineArn"]]


def test_an_account_exists_once_its_entry_role_was_assumed(aws: Cloud) -> None:
    enter_account(aws, PROD)
    other = enter_account(aws, OTHER)
    assert other("sts").get_caller_identity()["Account"] == OTHER
    assert [r["RoleName"] for r in other("iam").list_roles()["Roles"]]
    read_denial(lambda: session(aws, ENTRY.format(PROD), other))
    read_denial(lambda: session(aws, f"arn:aws:iam::{PROD}:role/missing"))


def test_a_role_lets_in_whom_its_trust_names(aws: Cloud) -> None:
    prod, other = enter_account(aws, PROD), enter_account(aws, OTHER)
    iam = prod("iam")
    iam.create_role(RoleName="reader", AssumeRolePolicyDocument=trusting(OTHER))
    reader = session(aws, f"arn:aws:iam::{PROD}:role/reader", other)
    assert reader("sts").get_caller_identity()["Account"] == PROD
    read_denial(lambda: session(aws, f"arn:aws:iam::{PROD}:role/reader"))


def test_a_bucket_is_its_accounts(aws: Cloud) -> None:
    prod, other = enter_account(aws, PROD), enter_account(aws, OTHER)
    ours, theirs = prod("s3"), other("s3")
    ours.create_bucket(Bucket="owned")
    ours.put_object(Bucket="owned", Key="a/b", Body=b"1")
    read_denial(lambda: theirs.create_bucket(Bucket="owned"), "BucketAlreadyExists")
    assert [b["Name"] for b in theirs.list_buckets()["Buckets"]] == []
    assert [b["Name"] for b in aws.s3.list_buckets()["Buckets"]] == ["bkt"]
    read_denial(lambda: theirs.get_object(Bucket="owned", Key="a/b"))
    read_denial(lambda: aws.s3.list_objects_v2(Bucket="owned"))
    policy = allow("s3:GetObject", "arn:aws:s3:::owned/a/*", AWS=OTHER)
    ours.put_bucket_policy(Bucket="owned", Policy=policy)
    assert theirs.get_object(Bucket="owned", Key="a/b")["Body"].read() == b"1"
    read_denial(lambda: theirs.put_object(Bucket="owned", Key="a/b", Body=b"2"))
    read_denial(lambda: aws.s3.get_object(Bucket="owned", Key="a/b"))
    expected = {"ExpectedBucketOwner": OTHER}
    read_denial(lambda: ours.get_object(Bucket="owned", Key="a/b", **expected))
    ours.get_object(Bucket="owned", Key="a/b", ExpectedBucketOwner=PROD)


def test_a_key_encrypts_for_whom_its_policy_names(aws: Cloud) -> None:
    prod, other = enter_account(aws, PROD), enter_account(aws, OTHER)
    kms, s3 = prod("kms"), prod("s3")
    root = json.loads(allow("kms:*", "*", AWS=f"arn:aws:iam::{PROD}:root"))["Statement"]
    key = kms.create_key(Policy=json.dumps({"Version": "2012-10-17", "Statement": root}))
    arn = key["KeyMetadata"]["Arn"]
    s3.create_bucket(Bucket="sealed")
    sealed = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": arn}
    s3.put_object(Bucket="sealed", Key="k", Body=b"1", **sealed)
    s3.put_bucket_policy(
        Bucket="sealed", Policy=allow("s3:GetObject", "arn:aws:s3:::sealed/*", AWS=OTHER)
    )
    theirs = other("s3")
    assert "kms:Decrypt" in read_denial(lambda: theirs.get_object(Bucket="sealed", Key="k"))
    shared = [*root, *json.loads(allow("kms:*Decrypt*", "*", AWS=OTHER))["Statement"]]
    document = json.dumps({"Version": "2012-10-17", "Statement": shared})
    kms.put_key_policy(KeyId=arn, PolicyName="default", Policy=document)
    assert theirs.get_object(Bucket="sealed", Key="k")["Body"].read() == b"1"
    read_denial(lambda: other("kms").encrypt(KeyId=arn, Plaintext=b"x"), "AccessDenied")
    sealed_by_prod = kms.encrypt(KeyId=arn, Plaintext=b"x")["CiphertextBlob"]
    opened = other("kms").decrypt(KeyId=arn, CiphertextBlob=sealed_by_prod)
    assert opened["Plaintext"] == b"x"


def test_a_group_is_shared_by_its_policy(aws: Cloud) -> None:
    prod, other = enter_account(aws, PROD), enter_account(aws, OTHER)
    ours, theirs = prod("sagemaker"), other("sagemaker")
    group = ours.create_model_package_group(ModelPackageGroupName="g")["ModelPackageGroupArn"]
    package = ours.create_model_package(ModelPackageGroupName="g", InferenceSpecification=MODEL)
    arn = package["ModelPackageArn"]
    read_denial(lambda: theirs.describe_model_package(ModelPackageName=arn))
    read_denial(lambda: theirs.list_model_packages(ModelPackageGroupName=group))
    read_denial(
        lambda: theirs.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved")
    )
    reads = ["sagemaker:DescribeModelPackage", "sagemaker:ListModelPackages"]
    resources = [group, f"{group.replace('-group/', '/')}/*"]
    ours.put_model_package_group_policy(
        ModelPackageGroupName="g", ResourcePolicy=allow(reads, resources, AWS=OTHER)
    )
    shown = theirs.describe_model_package(ModelPackageName=arn)
    assert shown["CreatedBy"]["IamIdentity"]["Arn"].split(":")[4] == PROD
    listed = theirs.list_model_packages(ModelPackageGroupName=group)["ModelPackageSummaryList"]
    assert [one["ModelPackageArn"] for one in listed] == [arn]
    read_denial(
        lambda: theirs.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved")
    )
    read_denial(lambda: aws.sm.describe_model_package(ModelPackageName=arn))
    assert not theirs.list_model_packages()["ModelPackageSummaryList"]
    ours.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved")
    changed = theirs.describe_model_package(ModelPackageName=arn)
    assert changed["LastModifiedBy"]["IamIdentity"]["Arn"].split(":")[4] == PROD
    missing = "arn:aws:sagemaker:us-east-1:444444444444:model-package-group/g"
    asked = {"ModelPackageGroupName": missing}
    assert "does not exist here" in read_denial(
        lambda: theirs.list_model_packages(**asked), "ValidationException"
    )


def test_a_role_of_another_account_cannot_be_passed(aws: Cloud) -> None:
    sm = enter_account(aws, PROD)("sagemaker")
    role = f"arn:aws:iam::{OWN}:role/AmazonSageMaker-ExecutionRole"
    said = read_denial(lambda: create(sm, [process_step("one", "true")], RoleArn=role), "")
    assert said == "Cross-account pass role is not allowed."


def test_what_another_account_refers_to_is_not_pruned(tmp_path: Path) -> None:
    steps = [process_step("one", "echo 1 > /opt/ml/processing/out/a", outputs={"out": OUT})]
    with cloud(tmp_path) as aws:
        aws.create("p", steps)
        assert aws.run("p")[0]["PipelineExecutionStatus"] == "Succeeded"
        aws.sm.delete_pipeline(PipelineName="p", ClientRequestToken="t" * 32)
        store = aws.endpoint.app.objects
        alone = plan_pruning(tmp_path, store, 0, None, include_cached=True)
        assert ("bkt", "out/a") in alone.objects
        prod = enter_account(aws, PROD)
        container = {"Image": "a/b:1", "ModelDataUrl": f"{OUT}/a"}
        sm = prod("sagemaker")
        sm.create_model_package_group(ModelPackageGroupName="g")
        sm.create_model_package(
            ModelPackageGroupName="g", InferenceSpecification={"Containers": [container]}
        )
        shared = plan_pruning(tmp_path, store, 0, None, include_cached=True)
        assert shared.units and not shared.objects


def test_a_pipeline_registers_in_another_accounts_group(aws: Cloud) -> None:
    theirs = enter_account(aws, PROD)("sagemaker")
    group = theirs.create_model_package_group(ModelPackageGroupName="theirs")[
        "ModelPackageGroupArn"
    ]
    step = {
        "Name": "Register",
        "Type": "RegisterModel",
        "Arguments": {"ModelPackageGroupName": group, "InferenceSpecification": MODEL},
    }
    aws.create("p", [step])
    ended, steps = aws.run("p")
    failed = steps["Register"]
    assert ended["PipelineExecutionStatus"] == "Failed"
    assert "not authorized to perform: sagemaker:CreateModelPackage" in failed["FailureReason"]
    package = f"{group.replace('-group/', '/')}/*"
    allowed = ["sagemaker:CreateModelPackage", "sagemaker:DescribeModelPackage"]
    theirs.put_model_package_group_policy(
        ModelPackageGroupName="theirs", ResourcePolicy=allow(allowed, package, AWS=OWN)
    )
    ended, steps = aws.run("p")
    assert ended["PipelineExecutionStatus"] == "Succeeded", steps["Register"]["FailureReason"]
    arn = steps["Register"]["Metadata"]["RegisterModel"]["Arn"]
    assert arn == f"{group.replace('-group/', '/')}/1"
    shown = theirs.describe_model_package(ModelPackageName=arn)
    assert shown["CreatedBy"]["IamIdentity"]["Arn"].split(":")[4] == OWN
    assert not aws.sm.list_model_package_groups()["ModelPackageGroupSummaryList"]


def test_a_package_says_who_registered_and_approved_it_from_another_account(aws: Cloud) -> None:
    prod, other = enter_account(aws, PROD), enter_account(aws, OTHER)
    group = prod("sagemaker").create_model_package_group(ModelPackageGroupName="said")
    group = group["ModelPackageGroupArn"]
    needs = [f"sagemaker:{verb}ModelPackage" for verb in ("Create", "Update", "Describe")]
    policy = allow(needs, [group, f"{group.replace('-group/', '/')}/*"], AWS=OTHER)
    prod("sagemaker").put_model_package_group_policy(
        ModelPackageGroupName="said", ResourcePolicy=policy
    )
    iam = other("iam")
    iam.create_user(UserName="ann")
    keys = iam.create_access_key(UserName="ann")["AccessKey"]
    keys = keys["AccessKeyId"], keys["SecretAccessKey"]
    ann = functools.partial(make_client, aws.endpoint, keys=keys)
    callers = {
        f"arn:aws:sts::{OTHER}:assumed-role/OrganizationAccountAccessRole/test": other,
        f"arn:aws:iam::{OTHER}:user/ann": ann,
    }
    for who, by in callers.items():
        sm = by("sagemaker")
        arn = sm.create_model_package(ModelPackageGroupName=group, InferenceSpecification=MODEL)
        arn = arn["ModelPackageArn"]
        assert sm.describe_model_package(ModelPackageName=arn)["CreatedBy"] == {
            "IamIdentity": {"Arn": who}
        }
        sm.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved")
        shown = prod("sagemaker").describe_model_package(ModelPackageName=arn)
        assert shown["LastModifiedBy"]["IamIdentity"]["Arn"] == who
