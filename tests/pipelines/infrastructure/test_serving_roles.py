"""Deploy and monitor, held to the roles derived for them: these suffice, and nothing is spare."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from pipelines.approve import approve
from pipelines.endpoint.answer_quality import iter_daily_lines
from pipelines.endpoint.rollout import find_served_package
from pipelines.infrastructure.serving_roles import build_recipe_subject
from pipelines.registry.package_evidence import split_s3_uri
from tests.conftest import CHECKOUT
from tests.endpoint_load import Load
from tests.registered import BUCKET, SETTINGS, Registered, another, checkout_in, register
from trainyard.emulator.iam.access_keys import TRUST
from trainyard.emulator.iam.account_policies import DERIVED_POLICY
from trainyard.permissions.policy_documents import parse_policy
from trainyard.permissions.policy_evaluation import Decision, Policies, Request, evaluate_request
from trainyard.permissions.role_template import derive_policy

pytestmark = pytest.mark.sweep
RECIPE = "recipes/laptop.yaml"
ROLES = "arn:aws:iam::123456789012:role"
SETS = [
    *SETTINGS,
    "train.loop.max_steps=5",  # a start that trains anew
    f"aws.job_role={ROLES}/job",
    "aws.account='123456789012'",
    "deploy.endpoint=live",
    "deploy.bake_minutes=0.1",
    "deploy.capture_share=1",
    "deploy.compare={quality: bits_per_byte}",
    f"monitor.baseline=s3://{BUCKET}/base/",
    "monitor.features=[text.bytes]",
    "monitor.retrain=true",
    "monitor.topic=arn:aws:sns:us-east-1:123456789012:drift",
]

TRUTHS = [f"monitor.truths=s3://{BUCKET}/truths/", "monitor.prediction=bits_per_byte"]


@dataclass
class Held:
    """A registered package, the derived roles in IAM, and the requests that each made."""

    package: Registered
    policies: dict[str, dict[str, Any]]
    requests: dict[str, list[Request]]

    def credentials(self, role: str) -> dict[str, str]:
        given = boto3.client("sts").assume_role(RoleArn=f"{ROLES}/{role}", RoleSessionName="me")
        names = {"ACCESS_KEY_ID": "AccessKeyId", "SECRET_ACCESS_KEY": "SecretAccessKey",
                 "SESSION_TOKEN": "SessionToken"}  # fmt: skip
        return {f"AWS_{name}": given["Credentials"][key] for name, key in names.items()}

    def verb(self, role: str, *words: str) -> tuple[int, str]:
        """Exit status and output of a verb of the recipe, with a role's rights; "": with all."""
        held = replace(
            self.package, env=self.package.env | (self.credentials(role) if role else {})
        )
        done = held.python(*words, "--recipe", RECIPE, *(w for one in SETS for w in ("--set", one)))
        return done.returncode, done.stdout + done.stderr

    def client(self, role: str, service: str) -> Any:
        """A client with a role's rights."""
        return boto3.Session(*self.credentials(role).values()).client(service)


@pytest.fixture(scope="module")
def held_roles(emulator, aws_environment, state, tmp_path_factory) -> Iterator[Held]:
    checkout = checkout_in(tmp_path_factory.mktemp("checkout"))
    found = Held(register(emulator, state, checkout), {}, defaultdict(list))
    sets = [*SETS, *TRUTHS]
    subject, iam = build_recipe_subject(CHECKOUT / RECIPE, sets), boto3.client("iam")
    for role in ("job", "deploy", "monitor"):
        found.policies[role] = derive_policy(subject, role)
        text = json.dumps(found.policies[role])
        iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(TRUST))
        iam.put_role_policy(RoleName=role, PolicyName=DERIVED_POLICY, PolicyDocument=text)

    def observe(decision: Decision) -> None:
        role = decision.request.principal.role or ""
        found.requests[role.rpartition("/")[2]].append(decision.request)

    emulator.app.aws.authority.observe = observe
    yield found


def test_both_suffice_and_neither_can_approve(held_roles: Held) -> None:
    first, second, sagemaker = held_roles.package.arn, another(), boto3.client("sagemaker")
    for role in ("deploy", "monitor"):
        approving = {"ModelPackageArn": first, "ModelApprovalStatus": "Approved"}
        with pytest.raises(ClientError, match="allows the sagemaker:UpdateModelPackage action"):
            held_roles.client(role, "sagemaker").update_model_package(**approving)
    for package in (first, second):
        approve(package, reason="a test")
    held_roles.requests.clear()
    assert held_roles.verb("deploy", "pipelines.deploy", first)[0] == 0
    body = json.dumps({"text": "def f(x):\n    return x\n"}).encode()
    asked = {"Body": body, "ContentType": "application/json"}
    with Load(held_roles.package.env, "live", lambda _: asked, clients=1, pause=0.2):
        status, said = held_roles.verb("deploy", "pipelines.deploy", second)
        assert (status, find_served_package(sagemaker, "live")) == (0, second), said
    status, said = held_roles.verb("deploy", "pipelines.deploy", "--rollback")
    assert (status, find_served_package(sagemaker, "live")) == (0, first), said

    point = {"MetricData": [{"MetricName": "WorseThanServing", "Value": 1.0}]}
    cloudwatch = held_roles.client("deploy", "cloudwatch")
    cloudwatch.put_metric_data(Namespace="Trainyard", **point)
    with pytest.raises(ClientError, match="allows the cloudwatch:PutMetricData action"):
        cloudwatch.put_metric_data(Namespace="AWS/SageMaker", **point)

    base = "\n".join(json.dumps({"text": "x" * n}) for n in range(200))
    boto3.client("s3").put_object(Bucket=BUCKET, Key="base/a.jsonl", Body=base.encode())
    boto3.client("sns").create_topic(Name="drift")
    status, said = held_roles.verb("", "pipelines.upsert")
    assert status == 0, said
    status, said = held_roles.verb("monitor", "pipelines.monitor", "--start")
    assert status == 1 and "started arn" in said, said
    # A language model has no truths; another one's are read beside its package's evaluation.
    assert find_served_package(held_roles.client("monitor", "sagemaker"), "live") == first
    s3 = held_roles.client("monitor", "s3")
    [*iter_daily_lines(s3, f"s3://{BUCKET}/truths/", datetime.now(UTC), datetime.now(UTC))]
    bucket, key = split_s3_uri(held_roles.package.evaluation_uri)
    s3.get_object(Bucket=bucket, Key=key)


@pytest.mark.parametrize("role", ["deploy", "monitor"])
def test_each_statement_is_needed(held_roles: Held, role: str) -> None:
    """After the test before, by whose requests it is judged."""
    statements = held_roles.policies[role]["Statement"]
    for left_out in statements:
        rest = {"Statement": [one for one in statements if one is not left_out]}
        policies = Policies(identity=(parse_policy("rest", rest),))
        denied = [
            r for r in held_roles.requests[role] if not evaluate_request(r, policies).is_allowed
        ]
        assert {r.action for r in denied} & {*left_out["Action"]}, left_out["Sid"]
