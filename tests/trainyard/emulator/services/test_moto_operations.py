"""moto's services: what it would only pretend to do is refused by name, the rest is answered."""

import json
import re

import boto3
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from tests.trainyard.emulator.requests import valid
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.services.moto_operations import ANSWERED_OPERATIONS

pytestmark = pytest.mark.long


UNNAMED = {"sesv2": "POST /v2/email/outbound-emails", "efs": "POST /2015-02-01/file-systems"}
"""Services whose signing name is not their own → what is said instead of the operation."""


@pytest.mark.parametrize(
    ("service", "operation"),
    [("athena", "StartQueryExecution"), ("batch", "SubmitJob"), ("codebuild", "StartBuild"),
     ("ec2", "RunInstances"), ("ecs", "RunTask"), ("emr-serverless", "StartJobRun"),
     ("glue", "StartJobRun"), ("rds-data", "ExecuteStatement"), ("ses", "SendEmail"),
     ("stepfunctions", "StartExecution"), ("ec2", "CreateFleet"), ("ssm", "CreateAssociation"),
     ("cloudformation", "CreateStackSet"), ("ecr", "StartImageScan"), ("sesv2", "SendEmail"),
     ("resourcegroupstaggingapi", "GetResources"), ("secretsmanager", "RotateSecret"),
     ("efs", "CreateFileSystem")],
)  # fmt: skip
def test_what_is_not_on_the_list_is_refused_by_name(endpoint, service: str, operation: str):
    client = make_client(endpoint, service)
    with pytest.raises(ClientError) as failure:
        getattr(client, xform_name(operation))(**valid(service, operation))
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    named = UNNAMED.get(service, operation)
    assert f"does not implement {named}. It would need" in str(failure.value)
    assert "itself: moto would only report success" in str(failure.value)


@pytest.mark.parametrize("service", ANSWERED_OPERATIONS)
def test_what_is_answered_exists_and_runs_nothing(service: str):
    model = boto3.client(service, "us-east-1", **NOBODY).meta.service_model
    names = [
        name for name in model.operation_names if re.fullmatch(ANSWERED_OPERATIONS[service], name)
    ]
    assert model.signing_name == service and len(names) >= 10
    delivers = service in ("dynamodb", "sns", "sqs", "cloudformation", "sts", "iam", "kms")
    assert delivers or not [name for name in names if RUNNING.match(name)]


NOBODY = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
RUNNING = re.compile("(Start|Run|Submit|Invoke|Execute|Send|Request|Rotate|Export|Import)[A-Z]")


def test_a_stack_makes_only_what_is_where_it_would_be_looked_for(client):
    formed = client("cloudformation")
    bucket = {"Resources": {"B": {"Type": "AWS::S3::Bucket"}}}
    with pytest.raises(ClientError, match="would need AWS::S3::Bucket in the emulator's own"):
        formed.create_stack(StackName="lie", TemplateBody=json.dumps(bucket))
    yaml = "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    Properties: {QueueName: made}\n"
    with pytest.raises(ClientError, match="AWS::SageMaker::Endpoint"):
        formed.create_stack(
            StackName="lie", TemplateBody=f"{yaml}  E:\n    Type: 'AWS::SageMaker::Endpoint'\n"
        )
    with pytest.raises(ClientError, match="TemplateURL: The specified bucket does not exist"):
        formed.create_stack(StackName="lie", TemplateURL="https://b.s3.amazonaws.com/t")
    formed.create_stack(StackName="true", TemplateBody=yaml)
    assert "made" in str(client("sqs").list_queues()["QueueUrls"])


def test_what_is_really_done_is_still_done(client):
    queue = client("sqs").create_queue(QueueName="q")["QueueUrl"]
    attributes = client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    topic = client("sns").create_topic(Name="t")["TopicArn"]
    arn = attributes["Attributes"]["QueueArn"]
    client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    client("sns").publish(TopicArn=topic, Message="told")
    assert "told" in client("sqs").receive_message(QueueUrl=queue)["Messages"][0]["Body"]
    for protocol, to in (("email", "a@example.com"), ("sms", "+15550100")):
        with pytest.raises(ClientError, match=f"delivers by {protocol}"):
            client("sns").subscribe(TopicArn=topic, Protocol=protocol, Endpoint=to)
    with pytest.raises(ClientError, match="text messages"):
        client("sns").publish(PhoneNumber="+15550100", Message="nobody hears")
    key = client("kms").create_key()["KeyMetadata"]["KeyId"]
    assert client("kms").generate_data_key(KeyId=key, KeySpec="AES_256")["Plaintext"]
