"""The operations that moto may answer: those that only store, or really do what they report.

Examples are a queue and a key. All other operations are refused by name before moto gets them: it
returns ``SUCCEEDED`` for a Glue job that never ran, and its CloudFormation creates a bucket in an
S3 that is not the emulator's. ``server`` writes the answer to a refused one.
"""

import ast
import functools
import inspect
import re

from botocore.loaders import Loader
from werkzeug import Request

from trainyard.emulator.rest_requests import Rest

ANSWERED_OPERATIONS = {
    "cloudformation": r"\w*(Stacks?|StackEvents|StackResources?|StackPolicy|ChangeSets?|Template"
    r"|TemplateSummary|Exports|Imports|TerminationProtection)",
    "dynamodb": r"(Batch|Create|Delete|Describe|Execute|Get|List|Put|Query|Scan|Tag|Transact|Untag"
    r"|Update)\w*",
    "ec2": r"(Associate|Attach|Authorize|Create|Delete|Describe|Detach|Disassociate|Modify|Replace"
    r"|Revoke)(Vpc|Subnet|SecurityGroup|Route|InternetGateway|ManagedPrefixList|Tags"
    r"|AvailabilityZones|Regions)\w*",
    "ecr": r"(Batch|Create|Delete|Describe|Get|List|Put|Set|Tag|Untag)\w+",
    "iam": r"\w+",
    "kms": r"\w+",
    "secretsmanager": r"(BatchGet|Create|Delete|Describe|Get|List|Put|Restore|Tag|Untag|Update"
    r"|Validate)\w+",
    "sns": r"\w+",
    "sqs": r"\w+",
    "ssm": r"\w*(Parameter|Tags)\w*",
    "sts": r"\w+",
}
"""Mapping of a service's signing name to a pattern of the operations that moto answers."""
STACK_RESOURCES = re.compile(
    "AWS::(IAM|SecretsManager|SQS|SNS|KMS|DynamoDB|ECR)::.*|AWS::SSM::Parameter"
    "|AWS::EC2::(VPC|Subnet|SecurityGroup|Route|InternetGateway).*"
    "|AWS::SageMaker::(Pipeline|ModelPackageGroup)"
)
"""Types of resources that CloudFormation may create.

moto creates most of them, in services that the emulator really uses; ``stack_resources`` creates
SageMaker's.
"""
_TYPE = re.compile(r"""["']?Type["']?\s*:\s*["']?((?:AWS|Custom|Alexa)::[\w:<>]+)""")


def find_refused_operation(service: str, request: Request) -> tuple[str, str] | None:
    """Return (operation, what it would need) if moto must not answer the request; else None.

    ``service`` is the name that the request is signed for.
    """
    operation = find_operation_name(service, request)
    if service not in ANSWERED_OPERATIONS or not re.fullmatch(
        ANSWERED_OPERATIONS[service], operation
    ):
        return operation, f"{service} itself: moto would only report success"
    if service == "cloudformation":
        return _find_refused_stack(operation, request)
    if service == "sns":
        return _find_refused_message(operation, request)
    return None


def find_operation_name(service: str, request: Request) -> str:
    """Return the name of the operation; empty if no service of botocore has it."""
    if target := request.headers.get("X-Amz-Target", ""):
        return target.rpartition(".")[2]
    if action := request.form.get("Action") or request.args.get("Action"):
        return action
    if service not in _list_service_names():
        return ""
    operation = Rest(service).find_operation(request)[0]
    return operation.name if operation else ""


@functools.cache
def _list_service_names() -> frozenset[str]:
    """Return the names of all services that botocore knows."""
    return frozenset(Loader().list_available_services("service-2"))


def _find_refused_stack(operation: str, request: Request) -> tuple[str, str] | None:
    """Return (operation, what it would need) if the stack has a type that moto would create outside
    the emulator's own services; else None.
    """
    types = _TYPE.findall(request.form.get("TemplateBody", ""))
    resources = {kind for kind in types if kind.count("::") == 2}  # others: types of parameters
    if foreign := sorted(kind for kind in resources if not STACK_RESOURCES.fullmatch(kind)):
        services = (
            f"{', '.join(foreign)} in the emulator's own services: create them there directly"
        )
        return operation, services
    return None


def _find_refused_message(operation: str, request: Request) -> tuple[str, str] | None:
    """Return (operation, what it would need) if moto would not deliver the message; else None."""
    protocol = request.form.get("Protocol", "sqs")
    if operation == "Subscribe" and protocol != "sqs":
        return operation, f"a service that delivers by {protocol}; queues (sqs) do get messages"
    if operation == "Publish" and request.form.get("PhoneNumber"):
        return operation, "a service that delivers text messages"
    return None


# Members of a request that moto's IAM accepts and never reads, found in its source code.
#
# moto's methods read each member by its name. If a method does not contain the name of a member,
# the member has no effect: for example a user's PermissionsBoundary would limit no one.

_PROTOCOL_MEMBERS = {"Action", "Version"}


def list_ignored_members(request: Request) -> list[str]:
    """Return the members of a request to IAM that moto would ignore.

    Return none if moto does not have the operation.
    """
    texts = _collect_string_constants(request.values.get("Action", ""))
    names = {name.partition(".")[0] for name in request.values if not name.startswith("X-Amz-")}
    return sorted(
        name
        for name in (names - _PROTOCOL_MEMBERS if texts else ())
        if not any(text == name or text.startswith(f"{name}.") for text in texts)
    )


@functools.cache
def _collect_string_constants(operation: str) -> frozenset[str]:
    """Return all string constants in moto's method for the operation and in the methods it calls.

    Return an empty set if moto does not have the operation.
    """
    from moto.core.utils import camelcase_to_underscores  # here, as it takes 0.3 s with IAM

    methods = _parse_methods()
    pending, texts, visited_names = [camelcase_to_underscores(operation)], set[str](), set[str]()
    while pending:
        name = pending.pop()
        if name in visited_names or name not in methods:
            continue
        visited_names.add(name)
        for node in ast.walk(methods[name]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.Attribute):
                pending.append(node.attr)
    return frozenset(texts)


@functools.cache
def _parse_methods() -> dict[str, ast.FunctionDef]:
    """Return the syntax trees of the methods of moto's IAM, by name."""
    from moto.iam.responses import IamResponse

    tree = ast.parse(inspect.getsource(IamResponse))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
