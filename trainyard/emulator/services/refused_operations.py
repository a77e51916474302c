"""What moto's other services say without doing it: refused by name before moto is asked.

moto answers ``SUCCEEDED`` for a Glue job that nobody ran, and its CloudFormation makes a bucket in
an S3 that is not the one here. What only stores, or really does what it says among moto's own
services (a queue, a table, a key), is left to it.
"""

import functools
import re

from botocore.loaders import Loader
from werkzeug import Request

from trainyard.emulator.rest_requests import Rest

_MACHINES = "machines or containers that run for as long as they are wanted"
_MAIL = "somebody who delivers mail"
_RUNS = "something that runs it, and moto only says that it did"
_VERBS = re.compile(
    "(Start|Run|Submit|Invoke|Execute|Send|Restore|Reboot|Resume|Detect|Synthesize|Translate)[A-Z]"
)
"""How the operations begin that run, deliver or analyse something."""
DOES = frozenset(
    "sqs sns dynamodb kms kinesis secretsmanager iam sts swf events lambda monitoring".split()
)
"""Services, by the name that requests are signed for, whose verbs moto, or a room here, keeps."""
MAKES: dict[str, tuple[str, str]] = {
    "application-autoscaling": (
        "RegisterScalableTarget PutScalingPolicy PutScheduledAction",
        "instances that come and go with the load",
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
    "firehose": ("CreateDeliveryStream", "deliveries into the S3 that is here"),
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
        "an index over every service; each service lists and tags what is its own",
    ),
    "timestream-influxdb": ("CreateDbInstance", _MACHINES),
    "transfer": ("CreateServer", _MACHINES),
    "workspaces": ("CreateWorkspaces", _MACHINES),
}
"""Service → its operations that run something without saying so, and what they would need."""
_REST = {
    "aps": ("amp",),
    "bedrock": ("bedrock", "bedrock-runtime", "bedrock-agent"),
    "connect-campaigns": ("connectcampaigns",),
    "elasticfilesystem": ("efs",),
    "es": ("opensearch", "es"),
    "mobiletargeting": ("pinpoint",),
    "ses": ("sesv2",),
}
"""Signing name → botocore's services that speak REST, where they are not called the same."""
FORMED = re.compile("AWS::(IAM|SSM|SecretsManager|SQS|SNS|KMS|DynamoDB|ECR|EC2)::.*")
"""Types that CloudFormation may make: they are where moto's CloudFormation makes them."""
_TYPE = re.compile(r"""["']?Type["']?\s*:\s*["']?((?:AWS|Custom|Alexa)::[\w:<>]+)""")


def refusal(service: str, request: Request) -> tuple[str, str] | None:
    """(operation, what it would need) of a request that moto would only pretend to do.

    ``service``: the name that it is signed for.
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
    """The operation's name; empty where no model of botocore's says which it is."""
    if target := request.headers.get("X-Amz-Target", ""):
        return target.rpartition(".")[2]
    if action := request.form.get("Action") or request.args.get("Action"):
        return action
    found = (rest.find(request)[0] for rest in _speaking(service))
    return next((operation.name for operation in found if operation), "")


@functools.cache
def _speaking(service: str) -> list[Rest]:
    """Botocore's services that may speak REST under that signing name."""
    known = set(Loader().list_available_services("service-2"))
    return [Rest(name) for name in sorted(known.intersection(_REST.get(service, (service,))))]


def _stack(operation: str, request: Request) -> tuple[str, str] | None:
    """A stack with a type that would be made beside what is here, where nobody sees it."""
    if request.form.get("TemplateURL"):
        return operation, "its template as TemplateBody: moto cannot read the S3 that is here"
    types = _TYPE.findall(request.form.get("TemplateBody", ""))
    resources = {kind for kind in types if kind.count("::") == 2}  # more: a parameter's type
    if foreign := sorted(kind for kind in resources if not FORMED.fullmatch(kind)):
        services = f"{', '.join(foreign)} made where they belong: create them by their own services"
        return operation, services
    return None


def _message(operation: str, request: Request) -> tuple[str, str] | None:
    """A message that would reach nobody."""
    protocol = request.form.get("Protocol", "sqs")
    if operation == "Subscribe" and protocol != "sqs":
        return operation, f"somebody who delivers by {protocol}; queues (sqs) get theirs"
    if operation == "Publish" and request.form.get("PhoneNumber"):
        return operation, "somebody who delivers text messages"
    return None
