"""What requests need: the actions and resources that IAM is asked about."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from werkzeug import Request
from werkzeug.test import EnvironBuilder

from tests.trainyard.permissions import reference
from trainyard.emulator.iam.s3_calls import (
    _ACTIONS,
    HAS_TAGS,
    KEY,
    iter_job_calls,
    iter_s3_calls,
    iter_step_calls,
    make_metric_call,
)
from trainyard.emulator.iam.service_calls import Call, iter_sagemaker_calls, iter_service_calls
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.s3.operation_routes import ROUTES

HERE = "us-east-1:123456789012"
SM = f"arn:aws:sagemaker:{HERE}"


def describe_calls(calls: Iterable[Call]) -> str:
    """Return each action and its resource; SM, S3 and HERE stand for what their ARNs begin with."""
    text = ", ".join(f"{call.action} {call.resource}" for call in calls)
    return text.replace(SM, "SM").replace("arn:aws:s3:::", "S3:").replace(HERE, "HERE")


def request(method: str, path: str, **more: Any) -> Request:
    environ = EnvironBuilder(path=path, method=method, **more).get_environ()
    return Request(environ | {"RAW_URI": path})


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with contextlib.closing(ObjectStore(tmp_path_factory.mktemp("s3"))) as store:
        yield store


S3 = [
    ("GET", "/", "s3:ListAllMyBuckets *"),
    ("GET", "/b?list-type=2&prefix=a/", "s3:ListBucket S3:b"),
    ("HEAD", "/b", "s3:ListBucket S3:b"),
    ("HEAD", "/b/k%2F1", "s3:GetObject S3:b/k/1"),
    ("GET", "/b/k?versionId=1", "s3:GetObjectVersion S3:b/k"),
    ("GET", "/b/k?tagging&versionId=1", "s3:GetObjectVersionTagging S3:b/k"),
    ("PUT", "/b/k?partNumber=1&uploadId=u", "s3:PutObject S3:b/k"),
    ("POST", "/b/k?uploads", "s3:PutObject S3:b/k"),
    ("DELETE", "/b/k?uploadId=u", "s3:AbortMultipartUpload S3:b/k"),
    ("POST", "/b?delete", ""),
    ("GET", "/b?policy", "s3:GetBucketPolicy S3:b"),
    ("GET", "/b?encryption", "s3:GetEncryptionConfiguration S3:b"),
]
WITH_HEADERS = [
    ({"x-amz-copy-source": "/c/x%20y?versionId=1"},
     "s3:PutObject S3:b/k, s3:GetObjectVersion S3:c/x y"),
    ({"x-amz-tagging": "a=b", "x-amz-acl": "private"},
     "s3:PutObject S3:b/k, s3:PutObjectTagging S3:b/k, s3:PutObjectAcl S3:b/k"),
    ({"x-amz-server-side-encryption": "aws:kms", KEY: "arn:aws:kms:us-east-1:1:key/k"},
     "s3:PutObject S3:b/k, kms:GenerateDataKey arn:aws:kms:us-east-1:1:key/k"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "needs"), S3)
def test_s3(objects: ObjectStore, method: str, path: str, needs: str):
    assert describe_calls(iter_s3_calls(request(method, path), objects)) == needs


@pytest.mark.parametrize(("headers", "needs"), WITH_HEADERS)
def test_headers_of_a_put_need_more(objects: ObjectStore, headers: dict, needs: str):
    assert describe_calls(iter_s3_calls(request("PUT", "/b/k", headers=headers), objects)) == needs


def test_an_object_that_kms_encrypts_needs_its_key(objects: ObjectStore):
    objects.create_bucket("bkt")
    with objects.create_blob() as blob:
        objects.commit("bkt", "k", blob, headers=WITH_HEADERS[-1][0])
    get = describe_calls(iter_s3_calls(request("GET", "/bkt/k"), objects))
    assert get == "s3:GetObject S3:bkt/k, kms:Decrypt arn:aws:kms:us-east-1:1:key/k"


def test_a_prefix_is_a_condition_key(objects: ObjectStore):
    [call] = iter_s3_calls(request("GET", "/b?list-type=2&prefix=a/&max-keys=3"), objects)
    assert call.context == {"s3:prefix": ("a/",), "s3:max-keys": ("3",)}


def test_every_operation_of_s3_has_an_action_that_iam_knows():
    for operation in ROUTES.keys() - {"DeleteObjects"}:
        assert reference.action(f"s3:{_ACTIONS.get(operation, operation)}"), operation


SAGEMAKER = [
    ("CreateTrainingJob", {"TrainingJobName": "a", "RoleArn": "arn:aws:iam::1:role/r"},
     "sagemaker:CreateTrainingJob SM:training-job/a, iam:PassRole arn:aws:iam::1:role/r"),
    ("CreateModel", {"ModelName": "m", "Tags": [{"Key": "k", "Value": "v"}]},
     "sagemaker:CreateModel SM:model/m, sagemaker:AddTags SM:model/m"),
    ("CreateHyperParameterTuningJob", {"HyperParameterTuningJobName": "t"},
     "sagemaker:CreateHyperParameterTuningJob SM:hyper-parameter-tuning-job/t"),
    ("CreateEndpoint", {"EndpointName": "e", "EndpointConfigName": "c"},
     "sagemaker:CreateEndpoint SM:endpoint/e, sagemaker:CreateEndpoint SM:endpoint-config/c"),
    ("StartPipelineExecution", {"PipelineName": "p"},
     "sagemaker:StartPipelineExecution SM:pipeline/p"),
    ("ListPipelineExecutionSteps", {"PipelineExecutionArn": f"{SM}:pipeline/p/execution/x"},
     "sagemaker:ListPipelineExecutionSteps SM:pipeline/p/execution/x"),
    ("ListPipelines", {}, "sagemaker:ListPipelines *"),
    ("CreateModelPackage", {"ModelPackageGroupName": "g"},
     "sagemaker:CreateModelPackage SM:model-package/g/*"),
    ("DescribeModelPackage", {"ModelPackageName": f"{SM}:model-package/g/1"},
     "sagemaker:DescribeModelPackage SM:model-package/g/1"),
    ("CreateModelPackageGroup", {"ModelPackageGroupName": "g"},
     "sagemaker:CreateModelPackageGroup SM:model-package-group/g"),
    ("AddTags", {"ResourceArn": f"{SM}:model/m"}, "sagemaker:AddTags SM:model/m"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "asked", "needs"), SAGEMAKER)
def test_sagemaker(operation: str, asked: dict, needs: str):
    assert describe_calls(iter_sagemaker_calls(operation, asked)) == needs


def test_members_of_a_request_are_condition_keys():
    asked = {
        "TrainingJobName": "a",
        "ResourceConfig": {"InstanceType": "ml.m5.large", "VolumeKmsKeyId": "k"},
        "VpcConfig": {"Subnets": ["s-1", "s-2"]},
        "EnableNetworkIsolation": True,
        "Tags": [{"Key": "Team", "Value": "red"}],
    }
    call = next(iter_sagemaker_calls("CreateTrainingJob", asked))
    assert call.context == {
        "sagemaker:instancetypes": ("ml.m5.large",),
        "sagemaker:volumekmskey": ("k",),
        "sagemaker:vpcsubnets": ("s-1", "s-2"),
        "sagemaker:networkisolation": ("true",),
        "aws:requesttag/team": ("red",),
        "aws:tagkeys": ("Team",),
    }


def target(name: str, **body: Any) -> Request:
    headers = {"X-Amz-Target": name}
    return request("POST", "/", headers=headers, data=json.dumps(body))


def form(**fields: str) -> Request:
    return request("POST", "/", data=fields)


OTHERS = [
    ("logs", target("Logs.PutLogEvents", logGroupName="/g", logStreamName="s"),
     "logs:PutLogEvents arn:aws:logs:HERE:log-group:/g:log-stream:s"),
    ("logs", target("Logs.CreateLogGroup", logGroupName="/g"),
     "logs:CreateLogGroup arn:aws:logs:HERE:log-group:/g:log-stream:"),
    ("events", target("AWSEvents.PutRule", Name="r"), "events:PutRule arn:aws:events:HERE:rule/r"),
    ("sqs", target("AmazonSQS.SendMessage", QueueUrl="http://x/123456789012/q"),
     "sqs:SendMessage arn:aws:sqs:HERE:q"),
    ("sns", form(Action="Publish", TopicArn=f"arn:aws:sns:{HERE}:t"),
     "sns:Publish arn:aws:sns:HERE:t"),
    ("monitoring", form(Action="PutMetricAlarm", AlarmName="a"),
     "cloudwatch:PutMetricAlarm arn:aws:cloudwatch:HERE:alarm:a"),
    ("kms", target("TrentService.Decrypt", KeyId="1-2"), "kms:Decrypt arn:aws:kms:HERE:key/1-2"),
    ("iam", form(Action="GetRole", RoleName="r"), "iam:GetRole arn:aws:iam::123456789012:role/r"),
    ("sts", form(Action="AssumeRole", RoleArn="arn:aws:iam::1:role/r"),
     "sts:AssumeRole arn:aws:iam::1:role/r"),
    ("sts", form(Action="GetCallerIdentity"), ""),  # who one is needs no permission
    ("lambda", request("POST", "/2015-03-31/functions/f/invocations"),
     "lambda:InvokeFunction arn:aws:lambda:HERE:function:f"),
    ("sagemaker", request("POST", "/endpoints/e/invocations"),
     "sagemaker:InvokeEndpoint SM:endpoint/e"),
    ("dynamodb", target("DynamoDB_20120810.GetItem", TableName="t"), "dynamodb:GetItem *"),
]  # fmt: skip


@pytest.mark.parametrize(("service", "asked", "needs"), OTHERS)
def test_other_services(service: str, asked: Request, needs: str):
    assert describe_calls(iter_service_calls(service, asked)) == needs


JOB = {
    "AppSpecification": {"ImageUri": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:1"},
    "ProcessingOutputConfig": {"Outputs": [], "KmsKeyId": "out"},
    "ProcessingResources": {"ClusterConfig": {"VolumeKmsKeyId": "alias/volumes"}},
    "NetworkConfig": {"VpcConfig": {"Subnets": ["s-1"], "SecurityGroupIds": ["g-1"]}},
    "InputDataConfig": [
        {"FileSystemDataSource": {"FileSystemType": "FSxLustre", "FileSystemId": "fs-1"}},
        {"FileSystemDataSource": {"FileSystemType": "EFS", "FileSystemId": "fs-0a1b2c3d"}},
    ],
}


def test_a_jobs_role_needs_what_its_request_names():
    calls = list(iter_job_calls(JOB))
    found = {(call.action, call.resource.rpartition(":")[2]) for call in calls}
    assert {
        ("ecr:BatchGetImage", "repository/pytorch"),
        ("kms:GenerateDataKey", "key/out"),
        ("kms:CreateGrant", "key/*"),
        ("ec2:CreateNetworkInterface", "subnet/s-1"),
        ("ec2:DeleteNetworkInterface", "network-interface/*"),
        ("fsx:DescribeFileSystems", "*"),
        ("elasticfilesystem:DescribeMountTargets", "file-system/fs-0a1b2c3d"),
    } <= found
    [grant] = [call for call in calls if call.action == "kms:CreateGrant"]
    assert grant.context["kms:resourcealiases"] == ("alias/volumes",)
    assert grant.context["kms:grantisforawsresource"] == ("true",)


def test_every_call_is_an_action_that_iam_knows_on_a_resource_that_it_has():
    steps = [
        ("Training", {"RoleArn": "arn:aws:iam::123456789012:role/r"}, {}),
        ("Tuning", {}, {}),
        ("Transform", {}, {}),
        ("QualityCheck", {}, {}),
        ("Model", {}, {}),
        ("EndpointConfig", {}, {}),
        ("Endpoint", {"EndpointConfigName": "c"}, {}),
        ("RegisterModel", {"ModelPackageGroupName": "g"}, {}),
        ("Lambda", {}, {"FunctionArn": f"arn:aws:lambda:{HERE}:function:f"}),
        ("Callback", {}, {"SqsQueueUrl": "https://sqs.us-east-1.amazonaws.com/123456789012/q"}),
    ]
    calls: list[Call] = [*iter_job_calls(JOB), make_metric_call("n")]
    for kind, arguments, fields in steps:
        found = list(iter_step_calls(kind, "pipelines-1-a-b", arguments, fields))
        assert found, kind
        calls += found
    for call in calls:
        kinds = reference.resource_types(call.action)
        assert (call.resource == "*") == (not kinds), call
        assert call.resource == "*" or reference.fits(call.action, call.resource), call
        assert all(
            key in {k.lower() for k in reference.condition_keys(call.action)}
            or key.startswith(("aws:requesttag/", "aws:tagkeys", "sagemaker:"))
            for key in call.context
        ), call


def test_actions_that_see_an_objects_tags_are_the_references():
    """Of those that the emulator's S3 has."""
    kinds = ("", "Acl", "Attributes", "Tagging")
    names = [f"s3:{verb}Object{version}{kind}" for verb in ("Get", "Put", "Delete")
             for version in ("", "Version") for kind in kinds]  # fmt: skip
    known = 0
    for name in names:
        with contextlib.suppress(KeyError):
            reference.action(name)
            keys = reference.condition_keys(name)
            has_tags = "s3:ExistingObjectTag/<key>" in keys
            assert has_tags == bool(HAS_TAGS.fullmatch(name)), name
            known += 1
    assert known > 12
