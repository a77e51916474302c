"""Roles that bite: derived ones suffice, and without a statement something fails by its name."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import (
    ROLE,
    Cloud,
    channel,
    cloud,
    compare,
    condition_step,
    fail_step,
    json_get,
    pipeline,
    process_step,
    s3_input,
    train_step,
    training,
)
from tests.trainyard.emulator.standin import make_client
from trainyard.common.errors import EmulatorError
from trainyard.emulator.iam.authority import Mode
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.policy_documents import read_control_policies
from trainyard.permissions.policy_evaluation import Decision
from trainyard.permissions.role_template import derive_policy
from trainyard.runs.why.diagnosis import diagnose_failure
from trainyard.runs.why.logged_exceptions import parse_evidence

pytestmark = pytest.mark.long

JOBS = "arn:aws:iam::123456789012:role/jobs"
SERVICE = {
    "Effect": "Allow",
    "Principal": {"Service": "sagemaker.amazonaws.com"},
    "Action": "sts:AssumeRole",
}
MINE = {"RoleArn": JOBS}
CONTAINER = {
    "Image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/i:1",
    "ModelDataUrl": {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"},
}
REGISTER = {
    "ModelPackageGroupName": "group",
    "ModelApprovalStatus": "PendingManualApproval",
    "InferenceSpecification": {
        "Containers": [CONTAINER],
        "SupportedContentTypes": ["text/csv"],
        "SupportedResponseMIMETypes": ["text/csv"],
    },
}
STEPS = [
    process_step(
        "Measure",
        "cd /opt/ml/processing; cat raw/a.txt; echo '{\"loss\": 0.5}' > out/m.json",
        outputs={"out": "s3://bkt/measured"},
        arguments=MINE | {"ProcessingInputs": [s3_input("raw", "s3://bkt/raw")]},
        PropertyFiles=[{"PropertyFileName": "loss", "OutputName": "out", "FilePath": "m.json"}],
    ),
    condition_step(
        "Good",
        [compare("LessThan", json_get("Measure", "loss", "loss"), 0.6)],
        [
            train_step(
                "Train",
                "cp /opt/ml/input/data/raw/a.txt /opt/ml/model; echo trained",
                arguments=MINE | {"InputDataConfig": [channel("raw", "s3://bkt/raw")]},
            ),
            {"Name": "Register", "Type": "RegisterModel", "Arguments": REGISTER},
        ],
        [fail_step("Bad", "the loss is high")],
    ),
]
SUBJECT = Subject(name="held", region="us-east-1", role=ROLE, document=pipeline(STEPS))
POLICIES = {
    role: derive_policy(SUBJECT, kind) for role, kind in (("jobs", "job"), ("pipeline", "pipeline"))
}


def document(*statements: dict) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


class Account:
    """A running emulator, its IAM, and the decisions that were made."""

    def __init__(self, aws: Cloud) -> None:
        self.aws, self.iam = aws, make_client(aws.endpoint, "iam")
        self.decisions: list[Decision] = []
        self.authority = aws.endpoint.app.aws.authority
        self.authority.observe = self.decisions.append
        aws.put("raw/a.txt", "text")

    def role(self, name: str, *statements: dict, policy: str = "derived", **more: Any) -> str:
        """Make the role anew with these statements."""
        self.drop(name)
        trust = document(more.pop("trust", SERVICE))
        made = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust, **more)["Role"]
        self.iam.put_role_policy(
            RoleName=name, PolicyName=policy, PolicyDocument=document(*statements)
        )
        return made["Arn"]

    def drop(self, name: str) -> None:
        if name not in [role["RoleName"] for role in self.iam.list_roles()["Roles"]]:
            return
        for policy in self.iam.list_role_policies(RoleName=name)["PolicyNames"]:
            self.iam.delete_role_policy(RoleName=name, PolicyName=policy)
        self.iam.delete_role(RoleName=name)

    def make_derived_roles(self, without: tuple[str, str] = ("", "")) -> None:
        """Make the derived roles, but for one statement, as (role, Sid)."""
        for name, derived in POLICIES.items():
            kept = [s for s in derived["Statement"] if (name, s["Sid"]) != without]
            self.role(name, *kept)
        self.decisions.clear()

    @property
    def denials(self) -> list[str]:
        return [decision.message for decision in self.decisions if not decision.is_allowed]

    def as_role(self, name: str, service: str, **session: Any):
        """Return a client with the keys of a session of the role."""
        sts = make_client(self.aws.endpoint, "sts")
        arn = f"arn:aws:iam::123456789012:role/{name}"
        given = sts.assume_role(RoleArn=arn, RoleSessionName="me", **session)["Credentials"]
        return self.client(service, given)

    def client(self, service: str, given: dict) -> Any:
        """Return a client with these credentials, or this access key."""
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        keys = [given[name] for name in names if name in given]
        return make_client(self.aws.endpoint, service, keys=keys)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with cloud(tmp_path_factory.mktemp("aws")) as aws:
        found = Account(aws)
        aws.create("held", STEPS)
        yield found


@pytest.fixture
def mode_setter(account: Account) -> Iterator[Callable]:
    """Sets the mode and the control policies for a test."""

    def setter(mode: Mode, *control: dict, file: Path | None = None) -> None:
        account.authority.mode = mode
        if file:
            file.write_text(json.dumps(control))
        account.authority.control = read_control_policies(file)

    yield setter
    account.authority.mode, account.authority.control = "derived", ()


def test_the_derived_roles_suffice(account: Account):
    account.make_derived_roles()
    execution, steps = account.aws.run("held")
    assert execution["PipelineExecutionStatus"] == "Succeeded", steps
    assert account.denials == []
    used = {decision.request.action for decision in account.decisions}
    assert {"s3:GetObject", "s3:PutObject", "s3:ListBucket", "iam:PassRole"} <= used
    assert {"sagemaker:CreateTrainingJob", "logs:PutLogEvents", "ecr:BatchGetImage"} <= used


STATEMENTS = [
    ("jobs", "Read", "s3:GetObject", '"arn:aws:s3:::bkt/raw/a.txt"'),
    ("jobs", "List", "s3:ListBucket", '"arn:aws:s3:::bkt"'),
    ("jobs", "Write", "s3:PutObject", '"arn:aws:s3:::bkt/measured/m.json"'),
    ("jobs", "Images", "ecr:BatchCheckLayerAvailability", "repository/pytorch-training"),
    ("pipeline", "ProcessingJobs", "sagemaker:CreateProcessingJob", "processing-job/pipelines-"),
    ("pipeline", "PassJobRoles", "iam:PassRole", JOBS),
    ("pipeline", "ReadResults", "s3:GetObject", '"arn:aws:s3:::bkt/measured/m.json"'),
    ("pipeline", "Register", "sagemaker:CreateModelPackage", "model-package/group/*"),
]


@pytest.mark.parametrize(("role", "sid", "action", "resource"), STATEMENTS)
def test_without_a_statement_a_step_fails_by_its_name(
    account: Account, role: str, sid: str, action: str, resource: str
):
    account.make_derived_roles(without=(role, sid))
    execution, steps = account.aws.run("held")
    assert execution["PipelineExecutionStatus"] == "Failed"
    [reason] = [step["FailureReason"] for step in steps.values() if "FailureReason" in step]
    who = f"User: arn:aws:sts::123456789012:assumed-role/{role}/SageMaker is not authorized"
    assert f"{who} to perform: {action} on resource: " in reason
    assert resource in reason
    assert f"because no identity-based policy allows the {action} action" in reason
    cause = diagnose_failure(parse_evidence(reason))
    assert cause.name == "aws/permission"
    assert f"Add to the role's policy ({role}): " in cause.fix
    assert f'"Action": "{action}"' in cause.fix


def test_a_job_without_the_right_to_log_runs_and_has_no_log(account: Account, caplog):
    account.make_derived_roles(without=("jobs", "Logs"))
    execution, _ = account.aws.run("held")
    assert execution["PipelineExecutionStatus"] == "Succeeded"
    assert "logs:CreateLogStream on resource" in caplog.text


def test_a_container_is_held_to_its_role_and_not_told_that_a_key_is_missing(account: Account):
    account.make_derived_roles(without=("jobs", "List"))
    account.aws.put("secret", "x")
    script = """exec python - <<'P'
import boto3
for key in ("secret", "raw/absent"):
    try: boto3.client("s3").get_object(Bucket="bkt", Key=key)
    except Exception as error: print(error)
P"""
    account.aws.train("asks", script, **MINE)
    said = account.aws.log("Training", "asks")
    assert len(said) == 2
    for line, action in zip(said, ("s3:GetObject", "s3:ListBucket"), strict=True):
        assert "(AccessDenied) when calling the GetObject operation: User: " in line
        assert action in line


def test_trust_that_leaves_sagemaker_out(account: Account):
    account.make_derived_roles()
    other = SERVICE | {"Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:sagemaker:*:*:model/*"}}}
    account.role("jobs", *POLICIES["jobs"]["Statement"], trust=other)
    with pytest.raises(ClientError, match=f"Could not assume role {JOBS}"):
        account.aws.sm.create_training_job(TrainingJobName="mistrusted", **training(":") | MINE)


# other roles, by --iam


def test_tags_of_an_object_decide_as_in_awss_own_policy(account: Account, mode_setter):
    """AmazonSageMakerFullAccess reads buckets without SageMaker in their name by such a tag."""
    account.iam.create_role(RoleName="full", AssumeRolePolicyDocument=document(SERVICE))
    managed = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
    account.iam.attach_role_policy(RoleName="full", PolicyArn=managed)
    s3 = account.as_role("full", "s3")
    mode_setter("enforce")
    for key, tags in (("plain", ""), ("tagged", "SageMaker=TRUE"), ("other", "SageMaker=no")):
        account.aws.s3.put_object(Bucket="bkt", Key=key, Body=b"x", Tagging=tags)
    assert s3.get_object(Bucket="bkt", Key="tagged")["Body"].read() == b"x"
    for call, key in (*((s3.get_object, key) for key in ("plain", "other", "missing")),
                      (s3.put_object, "tagged")):  # fmt: skip
        with pytest.raises(ClientError, match="because no identity-based policy allows"):
            call(Bucket="bkt", Key=key)
    account.iam.detach_role_policy(RoleName="full", PolicyArn=managed)


READ = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bkt/*"}
LIST = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::bkt"}
PREFIX = LIST | {"Condition": {"StringLike": {"s3:prefix": "a*"}}}


@pytest.mark.parametrize(("statements", "code"), [([], 403), ([LIST], 404), ([PREFIX], 403)])
def test_that_a_key_is_missing_is_told_to_whom_may_list_its_bucket(
    account: Account, mode_setter, statements: list[dict], code: int
):
    does = READ | {"Action": ["s3:GetObject", "s3:PutObject"]}
    account.role("reader", does, *statements, policy="own")
    s3 = account.as_role("reader", "s3")
    mode_setter("enforce")
    source = {"Bucket": "bkt", "Key": "absent"}
    for call, asked in (
        (s3.get_object, source),
        (s3.head_object, source),
        (s3.copy_object, {"Bucket": "bkt", "Key": "copy", "CopySource": source}),
    ):
        with pytest.raises(ClientError) as missing:
            call(**asked)
        assert missing.value.response["ResponseMetadata"]["HTTPStatusCode"] == code


def test_a_role_of_ones_own_is_held_only_if_asked(account: Account, mode_setter, caplog):
    account.role("mine", READ, policy="by hand")
    s3 = account.as_role("mine", "s3")
    s3.put_object(Bucket="bkt", Key="a", Body=b"")
    mode_setter("warn")
    s3.put_object(Bucket="bkt", Key="a", Body=b"")
    assert "denied by IAM, but done: User: " in caplog.text
    mode_setter("enforce")
    s3.get_object(Bucket="bkt", Key="a")
    with pytest.raises(ClientError) as denied:
        s3.put_object(Bucket="bkt", Key="a", Body=b"")
    assert denied.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert denied.value.response["Error"] == {
        "Code": "AccessDenied",
        "Resource": "/bkt/a",
        "Message": "User: arn:aws:sts::123456789012:assumed-role/mine/me is not authorized to "
        'perform: s3:PutObject on resource: "arn:aws:s3:::bkt/a" because no identity-based policy '
        "allows the s3:PutObject action",
    }
    account.role("mine", READ)  # as if derived
    account.decisions.clear()
    mode_setter("off")
    account.as_role("mine", "s3").put_object(Bucket="bkt", Key="a", Body=b"")
    assert account.decisions == []


@pytest.mark.parametrize(
    ("service", "call", "code"),
    [
        ("sagemaker", "list_pipelines", "AccessDeniedException"),
        ("logs", "describe_log_groups", "AccessDeniedException"),
        ("iam", "list_roles", "AccessDenied"),
        ("lambda", "list_functions", "AccessDeniedException"),
    ],
)
def test_each_protocol_has_its_own_error(account: Account, service: str, call: str, code: str):
    account.role("held", READ)
    with pytest.raises(ClientError, match="is not authorized to perform") as denied:
        getattr(account.as_role("held", service), call)()
    assert denied.value.response["Error"]["Code"] == code


def test_a_role_that_is_not_there_is_refused_by_name(account: Account, mode_setter):
    mode_setter("enforce")
    account.drop("nobody")
    role = "arn:aws:iam::123456789012:role/nobody"
    job = account.aws.train("nobodys", "true", RoleArn=role)
    assert "assumed-role/nobody/SageMaker is not authorized" in job["FailureReason"]
    assert "the role or user does not exist in this IAM" in job["FailureReason"]


def test_boundary_bucket_and_control_policies(account: Account, mode_setter, tmp_path: Path):
    everything = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    made = account.iam.create_policy(PolicyName="limit", PolicyDocument=document(READ))
    account.role("wide", everything, PermissionsBoundary=made["Policy"]["Arn"])
    account.aws.put("a", "x")
    with pytest.raises(ClientError, match="because no permissions boundary allows the s3:PutObj"):
        account.as_role("wide", "s3").put_object(Bucket="bkt", Key="a", Body=b"")
    account.role("wide", everything)
    deny = READ | {"Effect": "Deny", "Principal": "*", "Sid": "NoReader"}
    account.aws.s3.put_bucket_policy(Bucket="bkt", Policy=document(deny))
    assert account.aws.s3.get_bucket_policy(Bucket="bkt")["Policy"] == document(deny)
    explicit = "with an explicit deny in a resource-based policy .state"
    with pytest.raises(ClientError, match=explicit):
        account.as_role("wide", "s3").get_object(Bucket="bkt", Key="a")
    account.aws.s3.delete_bucket_policy(Bucket="bkt")
    account.as_role("wide", "s3").get_object(Bucket="bkt", Key="a")
    mode_setter("derived", {"Version": "2012-10-17", "Statement": READ}, file=tmp_path / "scp.json")
    with pytest.raises(ClientError, match="because no service control policy allows the s3:Put"):
        account.aws.put("a", "y")  # the account's own administrator, too


def test_a_user_is_held_to_its_groups(account: Account, mode_setter):
    iam = account.iam
    iam.create_user(UserName="ann")
    iam.create_group(GroupName="readers")
    iam.add_user_to_group(GroupName="readers", UserName="ann")
    own = READ | {"Resource": "arn:aws:s3:::bkt/${aws:username}/*"}
    iam.put_group_policy(GroupName="readers", PolicyName="own", PolicyDocument=document(own))
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    s3 = account.client("s3", key)
    for name in ("ann/a", "bob/a"):
        account.aws.put(name, "x")
    mode_setter("enforce")
    s3.get_object(Bucket="bkt", Key="ann/a")
    with pytest.raises(ClientError, match="User: arn:aws:iam::123456789012:user/ann is not auth"):
        s3.get_object(Bucket="bkt", Key="bob/a")
    mode_setter("off")
    s3.get_object(Bucket="bkt", Key="bob/a")


def test_a_key_is_used_by_whom_its_policy_names(account: Account):
    kms = make_client(account.aws.endpoint, "kms")
    mine = {"Sid": "Mine", "Effect": "Allow", "Action": "kms:*", "Resource": "*"}
    me = mine | {"Principal": {"AWS": "arn:aws:iam::123456789012:role/other"}}
    key = kms.create_key(Policy=document(me))["KeyMetadata"]["KeyId"]
    account.role("encrypter", {"Effect": "Allow", "Action": "kms:*", "Resource": "*"})
    theirs = account.as_role("encrypter", "kms")
    said = "because no resource-based policy allows the kms:Encrypt"
    with pytest.raises(ClientError, match=said):
        theirs.encrypt(KeyId=key, Plaintext=b"x")
    delegated = document(mine | {"Principal": {"AWS": "arn:aws:iam::123456789012:root"}})
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=delegated)
    assert theirs.encrypt(KeyId=key, Plaintext=b"x")


def test_several_keys_are_deleted_each_by_its_own_right(account: Account):
    delete = READ | {"Action": "s3:DeleteObject", "Resource": "arn:aws:s3:::bkt/mine/*"}
    account.role("cleaner", delete)
    for name in ("mine/a", "yours/a"):
        account.aws.put(name, "x")
    keys = {"Objects": [{"Key": "mine/a"}, {"Key": "yours/a"}]}
    answer = account.as_role("cleaner", "s3").delete_objects(Bucket="bkt", Delete=keys)
    assert [one["Key"] for one in answer["Deleted"]] == ["mine/a"]
    assert [(one["Key"], one["Code"]) for one in answer["Errors"]] == [("yours/a", "AccessDenied")]


def test_a_policy_that_is_none_is_refused(account: Account, tmp_path: Path):
    with pytest.raises(ClientError, match="MalformedPolicy.*has no Statement"):
        account.aws.s3.put_bucket_policy(Bucket="bkt", Policy="{}")
    (tmp_path / "scp.json").write_text("[{}]")
    with pytest.raises(EmulatorError, match=r"policy scp.json\[0\]: has no Statement"):
        read_control_policies(tmp_path / "scp.json")
