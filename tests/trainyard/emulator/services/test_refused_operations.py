"""moto's other services: pretended operations are refused by name, real ones are not."""

import json

import boto3
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from tests.trainyard.emulator.requests import valid
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.services.refused_operations import _REST, DOES, MAKES

pytestmark = pytest.mark.long

RUNS = {
    "athena": "StartQueryExecution",
    "batch": "SubmitJob",
    "codebuild": "StartBuild",
    "codepipeline": "StartPipelineExecution",
    "comprehend": "DetectSentiment",
    "ec2": "RunInstances",
    "ecs": "RunTask",
    "emr": "RunJobFlow",
    "emr-serverless": "StartJobRun",
    "glue": "StartJobRun",
    "rds-data": "ExecuteStatement",
    "redshift-data": "ExecuteStatement",
    "rekognition": "DetectLabels",
    "ses": "SendEmail",
    "sesv2": "SendEmail",
    "ssm": "SendCommand",
    "stepfunctions": "StartExecution",
    "textract": "StartDocumentAnalysis",
    "transcribe": "StartTranscriptionJob",
}
SERVICES = {  # the name that requests are signed for → botocore's service
    "elasticmapreduce": "emr",
    "elasticfilesystem": "efs",
    "elasticloadbalancing": "elbv2",
    "es": "opensearch",
    "kinesisanalytics": "kinesisanalyticsv2",
    "application-autoscaling": "application-autoscaling",
    "tagging": "resourcegroupstaggingapi",
}


def refused(endpoint, service: str, operation: str) -> str:
    client = make_client(endpoint, service)
    with pytest.raises(ClientError, match="does not implement") as failure:
        getattr(client, xform_name(operation))(**valid(service, operation))
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return str(failure.value)


@pytest.mark.parametrize(("service", "operation"), RUNS.items())
def test_what_runs_something_is_refused_by_name(endpoint, service: str, operation: str):
    assert f"does not implement {operation}. It would need" in refused(endpoint, service, operation)


def test_what_makes_something_that_would_run_is_refused_by_name(endpoint):
    for signed, (operations, _) in MAKES.items():
        operation = operations.split()[0]
        assert operation in refused(endpoint, SERVICES.get(signed, signed), operation)


def test_the_tables_name_services_and_operations_that_there_are():
    known = boto3.session.Session().get_available_services()
    assert {name for names in _REST.values() for name in names} <= set(known)
    for signed, (operations, _) in MAKES.items():
        model = boto3.client(SERVICES.get(signed, signed), "us-east-1", **NOBODY).meta.service_model
        assert model.signing_name == signed
        older = {"es": "CreateElasticsearchDomain"}.get(signed, "")
        assert set(operations.split()) - {older} <= set(model.operation_names), signed


NOBODY = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}


def test_a_stack_makes_only_what_is_where_it_would_be_looked_for(client):
    formed = client("cloudformation")
    bucket = {"Resources": {"B": {"Type": "AWS::S3::Bucket"}}}
    with pytest.raises(ClientError, match="would need AWS::S3::Bucket created where"):
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
    assert {"sqs", "sns", "kms"} <= DOES
