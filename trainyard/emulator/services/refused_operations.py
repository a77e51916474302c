"""Operations that moto reports as done without doing them: refused by name before moto is asked.

moto answers ``SUCCEEDED`` for a Glue job that was never run, and its CloudFormation creates a
bucket in an S3 that is not this emulator's. Of moto's own services, those that only store, or
really do what they report (a queue, a table, a key), are left to it.
"""

import functools
import re

from botocore.loaders import Loader
from werkzeug import Request

from trainyard.emulator.rest_requests import Rest

_MACHINES = "machines or containers that keep running"
_MAIL = "a service that delivers mail"
_RUNS = "a service that runs it: moto only reports success"
_VERBS = re.compile(
    "(Start|Run|Submit|Invoke|Execute|Send|Restore|Reboot|Resume|Detect|Synthesize|Translate)[A-Z]"
)
"""Start of the names of operations that run, deliver or analyse something."""
DOES = frozenset(
    "sqs sns dynamodb kms kinesis secretsmanager iam sts swf events lambda monitoring".split()
)
"""Services, by signing name, whose such operations really work, in moto or in a room here."""
MAKES: dict[str, tuple[str, str]] = {
    "application-autoscaling": (
        "RegisterScalableTarget PutScalingPolicy PutScheduledAction",
        "instances that follow the load",
    ),
    "autoscaling": ("CreateAutoScalingGroup", _MACHINES),
    "batch": ("CreateComputeEnvironment", _MACHINES),
    "cloudtrail": ("CreateTrail", "a record of every call"),
    "codedeploy": ("CreateDeployment", _RUNS),
    "comprehend": ("CreateDocumentClassifier CreateEntityRecognizer", _RUNS),
    "dax": ("CreateCluster", _MACHINES),
    "dms": ("CreateReplicationInstance", _MACHINES),
    "ds": ("CreateDirectory CreateMicrosoftAD ConnectDirectory", _MACHINES),
    "dsql": ("CreateCluster", _MACHINES),
    "ec2": ("RequestSpotInstances RequestSpotFleet CreateFleet", _MACHINES),
    "ecs": ("CreateService CreateTaskSet", _MACHINES),
    "eks": ("CreateCluster CreateNodegroup CreateFargateProfile", _MACHINES),
    "elasticache": ("CreateCacheCluster CreateReplicationGroup", _MACHINES),
    "elasticfilesystem": ("CreateFileSystem CreateMountTarget", "a network file system"),
    "elasticloadbalancing": ("CreateLoadBalancer", _MACHINES),
    "elasticmapreduce": ("AddJobFlowSteps AddInstanceGroups", _MACHINES),
    "es": ("CreateDomain CreateElasticsearchDomain", _MACHINES),
    "firehose": ("CreateDeliveryStream", "deliveries into this emulator's S3"),
    "fsx": ("CreateFileSystem", "a network file system"),
    "kafka": ("CreateCluster CreateClusterV2", _MACHINES),
    "kinesisanalytics": ("CreateApplication", _RUNS),
    "memorydb": ("CreateCluster", _MACHINES),
    "mq": ("CreateBroker", _MACHINES),
    "osis": ("CreatePipeline", _RUNS),
    "pipes": ("CreatePipe", _RUNS),
    "rds": ("CreateDBInstance CreateDBCluster CreateDBInstanceReadReplica", _MACHINES),
    "redshift": ("CreateCluster", _MACHINES),
    "servicecatalog": ("ProvisionProduct", _RUNS),
    "ssm": ("CreateAssociation", _MACHINES),
    "synthetics": ("CreateCanary", _RUNS),
    "tagging": (
        "GetResources GetTagKeys GetTagValues TagResources UntagResources",
        "an index over every service; each service lists and tags its own resources",
    ),
    "timestream-influxdb": ("CreateDbInstance", _MACHINES),
    "transfer": ("CreateServer", _MACHINES),
    "workspaces": ("CreateWorkspaces", _MACHINES),
}
"""Service → its operations that run something despite their names, and what they would need."""
_REST = {
    "aps": ("amp",),
    "bedrock": ("bedrock", "bedrock-runtime", "bedrock-agent"),
    "connect-campaigns": ("connectcampaigns",),
    "elasticfilesystem": ("efs",),
    "es": ("opensearch", "es"),
    "mobiletargeting": ("pinpoint",),
    "ses": ("sesv2",),
}
"""Signing name → botocore's services with REST, where the names differ."""
FORMED = re.compile(
    "AWS::(IAM|SSM|SecretsManager|SQS|SNS|KMS|DynamoDB|ECR|EC2)::.*"
    "|AWS::SageMaker::(Pipeline|ModelPackageGroup)"
)
"""Types that CloudFormation may create: moto creates them in services that are really used here,
and stack_resources in this SageMaker.
"""
_TYPE = re.compile(r"""["']?Type["']?\s*:\s*["']?((?:AWS|Custom|Alexa)::[\w:<>]+)""")


def refusal(service: str, request: Request) -> tuple[str, str] | None:
    """Return (operation, what it would need) of a request that moto would only pretend to do.

    ``service``: the name that it is signed for. None for other requests.
    """
    operation = operation_of(service, request)
    operations, needed = MAKES.get(service, ("", ""))
    if operation in operations.split():
        return operation, needed
    if service == "cloudformation":
        return _stack(operation, request)
    if service == "sns":
        return _message(operation, request)
    if service not in DOES and _VERBS.match(operation):
        return operation, _MAIL if service == "ses" else _RUNS
    return None


def operation_of(service: str, request: Request) -> str:
    """Return the operation's name; empty if no model of botocore's has it."""
    if target := request.headers.get("X-Amz-Target", ""):
        return target.rpartition(".")[2]
    if action := request.form.get("Action") or request.args.get("Action"):
        return action
    found = (rest.find(request)[0] for rest in _speaking(service))
    return next((operation.name for operation in found if operation), "")


@functools.cache
def _speaking(service: str) -> list[Rest]:
    """Return botocore's services that may use REST under that signing name."""
    known = set(Loader().list_available_services("service-2"))
    return [Rest(name) for name in sorted(known.intersection(_REST.get(service, (service,))))]


def _stack(operation: str, request: Request) -> tuple[str, str] | None:
    """Refuse a stack with a type that moto would create outside the emulator's own services."""
    types = _TYPE.findall(request.form.get("TemplateBody", ""))
    resources = {kind for kind in types if kind.count("::") == 2}  # more: a parameter's type
    if foreign := sorted(kind for kind in resources if not FORMED.fullmatch(kind)):
        services = f"{', '.join(foreign)} created where they belong: use their own services"
        return operation, services
    return None


def _message(operation: str, request: Request) -> tuple[str, str] | None:
    """Refuse a message that would not be delivered."""
    protocol = request.form.get("Protocol", "sqs")
    if operation == "Subscribe" and protocol != "sqs":
        return operation, f"a service that delivers by {protocol}; queues (sqs) do get messages"
    if operation == "Publish" and request.form.get("PhoneNumber"):
        return operation, "a service that delivers text messages"
    return None
