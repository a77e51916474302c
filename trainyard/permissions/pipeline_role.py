"""Derive the policy of the pipeline's role, which creates jobs, reads files for conditions, and
registers models.

The actions are those of the developer guide, "IAM Access Management" of Pipelines: PassRole of the
roles that jobs assume, Create and Describe of each job type, GetObject for JsonGet. In addition to
that page:

AddTags         the service tags what it creates as part of creating it, and refuses if it may
                not (aws/aws-cdk#32294, and the reference's dependent actions).
Stop            stopping an execution stops its running jobs (from memory).
CreateModelPackageGroup
                called at every registration; the service accepts the response that it exists.
CreateTrainingJob on a training plan
                and on reserved-capacity/*, because AmazonSageMakerFullAccess allows both.
GetObject of the model
                CreateModelPackage checks that its caller may read the artifact.

The service chooses the names of jobs: ``pipelines-<execution>-<truncated step>-<random>``. The case
of the step's name in them has changed over the years, so a pattern can contain only the prefix. The
name of a tuning job begins with the execution's ID, because it has at most 32 characters (from
memory).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from trainyard.common.errors import DefinitionError
from trainyard.language.definition_document import Step, locate_property_file
from trainyard.language.expressions import GET, JSON_GET, iter_expressions, parse_get
from trainyard.language.step_types import get_step_type
from trainyard.permissions.job_role import allow_keys, iter_gaps
from trainyard.permissions.pipeline_subject import Subject, build_key_arn
from trainyard.permissions.statements import (
    Gap,
    Statement,
    join_location,
    minimize_patterns,
    split_uri,
)
from trainyard.permissions.step_requests import find_request_role, iter_all_requests, list_job_roles

SAGEMAKER = {"StringEquals": {"iam:PassedToService": ("sagemaker.amazonaws.com",)}}


CREATED_RESOURCES: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "Model": (("Models", "model/pipelines-*", ("CreateModel", "DescribeModel")),),
    "Tuning": (
        (
            "TuningJobs",
            "hyper-parameter-tuning-job/*",
            (
                "CreateHyperParameterTuningJob",
                "DescribeHyperParameterTuningJob",
                "ListTrainingJobsForHyperParameterTuningJob",
                "StopHyperParameterTuningJob",
            ),
        ),
    ),
    "AutoML": (
        (
            "AutoMLJobs",
            "automl-job/*",
            (
                "CreateAutoMLJob",
                "CreateAutoMLJobV2",
                "DescribeAutoMLJob",
                "DescribeAutoMLJobV2",
                "StopAutoMLJob",
            ),
        ),
    ),
    "EndpointConfig": (
        (
            "EndpointConfigs",
            "endpoint-config/{EndpointConfigName}",
            ("CreateEndpointConfig", "DescribeEndpointConfig"),
        ),
    ),
    "Endpoint": (
        ("Endpoints", "endpoint/{EndpointName}", ("CreateEndpoint", "DescribeEndpoint")),
        ("EndpointsOfConfigs", "endpoint-config/{EndpointConfigName}", ("CreateEndpoint",)),
    ),
    "InferenceComponent": (
        (
            "InferenceComponents",
            "inference-component/{InferenceComponentName}",
            ("CreateInferenceComponent", "DescribeInferenceComponent"),
        ),
        ("ComponentsOfEndpoints", "endpoint/{EndpointName}", ("CreateInferenceComponent",)),
    ),
    "Lineage": (
        ("Actions", "action/*", ("AddAssociation", "CreateAction")),
        ("Artifacts", "artifact/*", ("AddAssociation", "CreateArtifact")),
        ("Contexts", "context/*", ("AddAssociation", "CreateContext")),
    ),
}
"""Mapping of a step type to statements (Sid, resource, actions without AddTags) for what it creates
in addition to a :class:`trainyard.language.step_types.Job`. The resource may refer to members of
the step's Arguments in braces."""


def iter_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Iterate over the statements, and the gaps, of the policy of the pipeline's role.

    Raises:
        ExpressionError: the target of a reference does not exist.
    """
    yield from iter_gaps(subject)
    types = {step.type for step in subject.values.steps}
    jobs = {job.api: job for type_ in types if (job := get_step_type(type_).job)}
    for api, job in sorted(jobs.items()):
        actions = [f"{verb}{api}" for verb in ("Create", "Describe", "Stop")]
        yield Statement(
            sid=f"{api}s",
            actions=("sagemaker:AddTags", *(f"sagemaker:{action}" for action in actions)),
            resources=(subject.build_arn("sagemaker", f"{job.resource}/pipelines-*"),),
        )
    yield from _allow_resources(subject)
    yield from _allow_training_plans(subject)
    yield from _allow_registry(subject)
    yield Statement(
        sid="PassJobRoles",
        actions=("iam:PassRole",),
        resources=list_job_roles(subject),
        conditions=SAGEMAKER,
    )
    yield from _iter_unknown_roles(subject)
    yield from _allow_reads(subject)
    yield from _allow_invocations(subject)


def _allow_resources(subject: Subject) -> Iterator[Statement]:
    """Iterate over statements for the resources in ``CREATED_RESOURCES`` that steps create."""
    for type_, several in CREATED_RESOURCES.items():
        steps = [step for step in subject.values.steps if step.type == type_]
        for sid, resource, actions in several:
            names = (resource.format_map(_Names(subject, step)) for step in steps)
            yield Statement(
                sid=sid,
                actions=("sagemaker:AddTags", *(f"sagemaker:{action}" for action in actions)),
                resources=minimize_patterns(subject.build_arn("sagemaker", name) for name in names),
            )


class _Names(dict):
    """Mapping, for ``format_map``, of a member of a step's Arguments to its value as a pattern."""

    def __init__(self, subject: Subject, step: Step) -> None:
        self._subject, self._step = subject, step

    def __missing__(self, member: str) -> str:
        location = f"step {self._step.name}: {member}"
        return self._subject.values.resolve_text(self._step.arguments[member], location)


def _iter_unknown_roles(subject: Subject) -> Iterator[Gap]:
    """Iterate over the gaps for jobs whose role is known only when the pipeline runs."""
    for step, request in iter_all_requests(subject):
        try:
            if find_request_role(subject, step, request) is None and request.role is not None:
                yield Gap(
                    f"step {step.name}: its job's role is known only when the pipeline runs; allow "
                    "iam:PassRole for it by hand"
                )
        except DefinitionError as error:
            yield Gap(str(error))


def _allow_training_plans(subject: Subject) -> Iterator[Statement]:
    """Yield a statement for training plans: to create a job with a plan, CreateTrainingJob must
    also be allowed on the plan and on its reserved capacity.
    """
    plans = set()
    for step in subject.values.steps:
        resources = step.arguments.get("ResourceConfig") or {}
        if plan := resources.get("TrainingPlanArn"):
            location = f"step {step.name}: ResourceConfig.TrainingPlanArn"
            plans.add(subject.values.resolve_text(plan, location))
    machines = {subject.build_arn("sagemaker", "reserved-capacity/*")} if plans else set()
    yield Statement(
        sid="TrainingPlans",
        actions=("sagemaker:CreateTrainingJob",),
        resources=tuple(sorted(plans | machines)),
    )


def _allow_registry(subject: Subject) -> Iterator[Statement | Gap]:
    """Iterate over statements and gaps for registering model packages."""
    groups, unknown = find_registered_groups(subject)
    yield from unknown
    yield Statement(
        sid="ModelPackageGroups",
        actions=("sagemaker:AddTags", "sagemaker:CreateModelPackageGroup"),
        resources=tuple(
            subject.build_arn("sagemaker", f"model-package-group/{g.name}")
            for g in groups
            if g.is_own
        ),
    )
    packages = tuple(g.packages for g in groups)
    yield Statement(
        sid="ModelPackages",
        actions=("sagemaker:AddTags", "sagemaker:DescribeModelPackage"),
        resources=packages,
    )
    yield Statement(
        sid="Register",
        actions=("sagemaker:CreateModelPackage",),
        resources=packages,
        conditions=_build_status_condition(subject),
    )


def _build_status_condition(subject: Subject) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return a condition: packages are registered only with the definition's approval statuses.

    It is empty if a status is missing or not constant, such as a parameter.
    """
    steps = [step for step in subject.values.steps if step.type == "RegisterModel"]
    values = [step.arguments.get("ModelApprovalStatus") for step in steps]
    statuses = tuple(sorted({status for status in values if isinstance(status, str)}))
    bound = bool(values) and all(isinstance(status, str) for status in values)
    # With this condition, a later change of the definition cannot make the pipeline approve a
    # package.
    return {"StringEquals": {"sagemaker:ModelApprovalStatus": statuses}} if bound else {}


class Group(NamedTuple):
    """A model package group in which a definition registers models."""

    name: str
    packages: str
    """ARN pattern of its packages."""

    is_own: bool
    """True if it is in the pipeline's account, where the pipeline creates it if it is missing."""


def find_registered_groups(subject: Subject) -> tuple[list[Group], list[Gap]]:
    """Return the model package groups in which the definition registers models, and gaps.

    The gaps are groups whose names are not known, and groups of other accounts, which need a policy
    in that account.
    """
    groups, unknown = set(), []
    for step in subject.values.steps:
        if step.type != "RegisterModel":
            continue
        location = f"step {step.name}: ModelPackageGroupName"
        group = _resolve_text(subject, step.arguments.get("ModelPackageGroupName", ""), location)
        if isinstance(group, Gap):
            unknown.append(group)
        elif not group or "*" in group:
            unknown.append(Gap(f"{location}: is {group!r}; a policy needs its name"))
        else:
            name = group.rpartition("/")[2]
            account = group.split(":")[4] if group.startswith("arn:") else subject.account
            packages = subject.build_arn("sagemaker", f"model-package/{name}/*", account=account)
            is_own = account == subject.account
            groups.add(Group(name, packages, is_own))
            # Access to another account's group must also be allowed by a policy in that account.
            if not is_own:
                reason = (
                    f"{location}: {group} is another account's: the group's resource policy there "
                    "(PutModelPackageGroupPolicy) must allow this role to register and read its "
                    "packages"
                )
                unknown.append(Gap(reason))
    return sorted(groups), unknown


def _resolve_text(subject: Subject, value: Any, location: str) -> str | Gap:
    """Return ``value`` as a pattern (see ``Values.resolve_text``), or a gap if it is not known."""
    try:
        return subject.values.resolve_text(value, location)
    except DefinitionError as error:
        return Gap(str(error))


def _allow_reads(subject: Subject) -> Iterator[Statement | Gap]:
    """Iterate over statements and gaps for reading property files and registered models in S3, and
    for decrypting them.
    """
    objects = set()
    for location, uri in [*_iter_json_files(subject), *_iter_model_data(subject)]:
        try:
            if isinstance(uri, Gap):
                yield uri
            else:
                objects.add(split_uri(uri, location))
        except DefinitionError as error:
            yield Gap(str(error))
    arns = minimize_patterns(subject.build_bucket_arn(bucket, key) for bucket, key in objects)
    yield Statement(sid="ReadResults", actions=("s3:GetObject",), resources=arns)
    keys = set()
    for step, request in iter_all_requests(subject) if objects else ():
        for config in ("ProcessingOutputConfig", "OutputDataConfig"):
            if key := (request.arguments.get(config) or {}).get("KmsKeyId"):
                keys.add(
                    build_key_arn(
                        subject, subject.values.resolve_text(key, f"step {step.name}: KmsKeyId")
                    )
                )
    yield from allow_keys("DecryptResults", keys, ("kms:Decrypt",))


def _iter_json_files(subject: Subject) -> Iterator[tuple[str, str | Gap]]:
    """Iterate over (location in the definition, URI) of the files that JsonGet expressions read."""
    bodies = [
        expression[JSON_GET]
        for expression, _ in iter_expressions(subject.document)
        if JSON_GET in expression
    ]
    for body in bodies:
        if "S3Uri" in body:
            yield JSON_GET, _resolve_text(subject, body["S3Uri"], JSON_GET)
            continue
        file = parse_get(body["PropertyFile"][GET])
        folder, name = locate_property_file(subject.values.get_step(file.name).document, file.path)
        location = f"step {file.name}: property file {file.path}"
        uri = _resolve_text(subject, {GET: f"Steps.{file.name}.{folder}"}, location)
        yield location, uri if isinstance(uri, Gap) else join_location(uri, name)


def _iter_model_data(subject: Subject) -> Iterator[tuple[str, str | Gap]]:
    """Iterate over (location in the definition, URI or pattern) of the models to register."""
    for step in subject.values.steps:
        containers = (step.arguments.get("InferenceSpecification") or {}).get("Containers", ())
        for container in containers if step.type == "RegisterModel" else ():
            location = f"step {step.name}: model"
            if "ModelDataUrl" in container:
                yield location, _resolve_text(subject, container["ModelDataUrl"], location)
            if source := container.get("ModelDataSource", {}).get("S3DataSource"):
                uri = _resolve_text(subject, source["S3Uri"], location)
                prefix = source["S3DataType"] == "S3Prefix" and not isinstance(uri, Gap)
                yield location, f"{uri}*" if prefix else uri


def _allow_invocations(subject: Subject) -> Iterator[Statement | Gap]:
    """Iterate over statements and gaps for functions of Lambda and queues of Callback steps."""
    functions, queues = set(), set()
    for step in subject.values.steps:
        if step.type not in ("Lambda", "Callback"):
            continue
        field = "FunctionArn" if step.type == "Lambda" else "SqsQueueUrl"
        target = _resolve_text(subject, step.document.get(field, ""), f"step {step.name}: {field}")
        if isinstance(target, Gap):
            yield target
        elif step.type == "Lambda":
            functions.add(target)
        else:
            # The step has the queue's URL, which contains account and name; a policy needs its ARN.
            account, _, name = target.removeprefix("https://").partition("/")[2].partition("/")
            queues.add(subject.build_arn("sqs", name, account=account))
    yield Statement(
        sid="Functions", actions=("lambda:InvokeFunction",), resources=tuple(sorted(functions))
    )
    yield Statement(sid="Queues", actions=("sqs:SendMessage",), resources=tuple(sorted(queues)))
