"""The role that the pipeline assumes: it makes the jobs, reads what conditions ask for, registers.

Actions are those of the developer guide, "IAM Access Management" of Pipelines: PassRole of what
jobs assume, Create and Describe of each job type, GetObject for JsonGet. Beyond that page:

AddTags         the service tags what it makes, as a part of making it, and refuses without
                (aws/aws-cdk#32294, and the reference's dependent actions).
Stop            what stopping an execution does to its running jobs (from memory).
CreateModelPackageGroup
                asked for at every registration; the service expects to be told that it exists.
CreateTrainingJob on a training plan
                and on reserved-capacity/*, as AmazonSageMakerFullAccess allows both.
GetObject of the model
                CreateModelPackage checks that its caller may read the artifact.

The names are the service's: jobs ``pipelines-<execution>-<step, cut>-<random>``, and the case of
the step's name in it has changed over the years, so a pattern cannot hold more than the prefix.
"""

from collections.abc import Iterator

from trainyard.common.errors import DefinitionError
from trainyard.language.expressions import GET, JSON_GET, expressions, parse_get
from trainyard.language.step_types import step_type
from trainyard.language.steps import property_file
from trainyard.permissions.jobs import Collector, Needs, key_arn, key_statements, refuse_uncovered
from trainyard.permissions.statements import Statement, minimal
from trainyard.permissions.subject import Subject
from trainyard.permissions.values import split_uri

SAGEMAKER = {"StringEquals": {"iam:PassedToService": ("sagemaker.amazonaws.com",)}}


def statements(subject: Subject) -> Iterator[Statement]:
    """The policy of the pipeline's role.

    Raises:
        DefinitionError: a step's type is not covered, or a reference leads nowhere.
    """
    refuse_uncovered(subject)
    types = {step.type for step in subject.values.steps}
    jobs = {job.api: job for type_ in types if (job := step_type(type_).job)}
    for api, job in sorted(jobs.items()):
        actions = [f"{verb}{api}" for verb in ("Create", "Describe", "Stop")]
        yield Statement(
            sid=f"{api}s",
            actions=("sagemaker:AddTags", *(f"sagemaker:{action}" for action in actions)),
            resources=(subject.arn("sagemaker", f"{job.resource}/pipelines-*"),),
        )
    yield Statement(
        sid="Models",
        actions=("sagemaker:AddTags", "sagemaker:CreateModel", "sagemaker:DescribeModel"),
        resources=(subject.arn("sagemaker", "model/pipelines-*"),) if "Model" in types else (),
    )
    yield from _reserved(subject)
    yield from _registry(subject)
    yield Statement(
        sid="PassJobRoles",
        actions=("iam:PassRole",),
        resources=subject.job_roles,
        conditions=SAGEMAKER,
    )
    yield from _reads(subject)
    yield from _invocations(subject)


def _reserved(subject: Subject) -> Iterator[Statement]:
    """A job on a training plan is made on the plan and on its machines, too."""
    plans = set()
    for step in subject.values.steps:
        resources = step.arguments.get("ResourceConfig") or {}
        if plan := resources.get("TrainingPlanArn"):
            where = f"step {step.name}: ResourceConfig.TrainingPlanArn"
            plans.add(subject.values.text(plan, where))
    machines = {subject.arn("sagemaker", "reserved-capacity/*")} if plans else set()
    yield Statement(
        sid="TrainingPlans",
        actions=("sagemaker:CreateTrainingJob",),
        resources=tuple(sorted(plans | machines)),
    )


def _registry(subject: Subject) -> Iterator[Statement]:
    groups = sorted(registered_groups(subject))
    yield Statement(
        sid="ModelPackageGroups",
        actions=("sagemaker:AddTags", "sagemaker:CreateModelPackageGroup"),
        resources=tuple(subject.arn("sagemaker", f"model-package-group/{g}") for g in groups),
    )
    packages = tuple(subject.arn("sagemaker", f"model-package/{g}/*") for g in groups)
    yield Statement(
        sid="ModelPackages",
        actions=("sagemaker:AddTags", "sagemaker:DescribeModelPackage"),
        resources=packages,
    )
    yield Statement(
        sid="Register",
        actions=("sagemaker:CreateModelPackage",),
        resources=packages,
        conditions=_statuses(subject),
    )


def _statuses(subject: Subject) -> dict[str, dict[str, tuple[str, ...]]]:
    """As what packages may be registered: so a pipeline of ours can approve none, whatever its
    definition has become. A definition that says it by a parameter, or not at all, is not bound.
    """
    steps = [step for step in subject.values.steps if step.type == "RegisterModel"]
    found = [step.arguments.get("ModelApprovalStatus") for step in steps]
    told = tuple(sorted({status for status in found if isinstance(status, str)}))
    bound = bool(found) and all(isinstance(status, str) for status in found)
    return {"StringEquals": {"sagemaker:ModelApprovalStatus": told}} if bound else {}


def registered_groups(subject: Subject) -> set[str]:
    """Names of the model package groups that the definition registers in.

    Raises:
        DefinitionError: a run decides the group, so no policy can name it.
    """
    groups = set()
    for step in subject.values.steps:
        if step.type == "RegisterModel":
            where = f"step {step.name}: ModelPackageGroupName"
            group = subject.values.text(step.arguments.get("ModelPackageGroupName", ""), where)
            if not group or "*" in group:
                raise DefinitionError(f"{where}: is {group!r}; a policy needs its name")
            groups.add(group.rpartition("/")[2])  # a name, or the group's ARN
    return groups


def _reads(subject: Subject) -> Iterator[Statement]:
    """Single objects: property files, and the models that are registered."""
    uris = {*_json_files(subject), *_model_data(subject)}
    objects = {split_uri(uri, "JsonGet") for uri in uris}
    arns = minimal(subject.bucket_arn(bucket, key) for bucket, key in objects)
    yield Statement(sid="ReadResults", actions=("s3:GetObject",), resources=arns)
    keys = _output_keys(subject) if objects else set()
    yield from key_statements("DecryptResults", keys, ("kms:Decrypt",))


def _json_files(subject: Subject) -> Iterator[str]:
    """URIs of what every JsonGet reads."""
    values = subject.values
    bodies = [found[JSON_GET] for found, _ in expressions(subject.document) if JSON_GET in found]
    for body in bodies:
        if "S3Uri" in body:
            yield values.text(body["S3Uri"], "Std:JsonGet")
            continue
        file = parse_get(body["PropertyFile"][GET])
        folder, name = property_file(values.step(file.name).document, file.path)
        where = f"step {file.name}: property file {file.path}"
        yield f"{values.text({GET: f'Steps.{file.name}.{folder}'}, where)}/{name}"


def _model_data(subject: Subject) -> Iterator[str]:
    for step in subject.values.steps:
        containers = (step.arguments.get("InferenceSpecification") or {}).get("Containers", ())
        for container in containers if step.type == "RegisterModel" else ():
            where = f"step {step.name}: model"
            if "ModelDataUrl" in container:
                yield subject.values.text(container["ModelDataUrl"], where)
            if source := container.get("ModelDataSource", {}).get("S3DataSource"):
                prefix = source["S3DataType"] == "S3Prefix"
                yield subject.values.text(source["S3Uri"], where) + ("*" if prefix else "")


def _output_keys(subject: Subject) -> set[str]:
    """The KMS keys that the jobs' outputs are encrypted with."""
    keys = set()
    for step in subject.values.steps:
        for config in ("ProcessingOutputConfig", "OutputDataConfig"):
            if key := (step.arguments.get(config) or {}).get("KmsKeyId"):
                keys.add(key_arn(subject, subject.values.text(key, f"step {step.name}: KmsKeyId")))
    return keys


def _invocations(subject: Subject) -> Iterator[Statement]:
    functions, queues = set(), set()
    for step in subject.values.steps:
        collector = Collector(subject, step, Needs())
        if step.type == "Lambda":
            functions.add(collector.text(step.document.get("FunctionArn", ""), "FunctionArn"))
        if step.type == "Callback":
            url = collector.text(step.document.get("SqsQueueUrl", ""), "SqsQueueUrl")
            account, _, name = url.removeprefix("https://").partition("/")[2].partition("/")
            queues.add(subject.arn("sqs", name, account=account))
    yield Statement(
        sid="Functions", actions=("lambda:InvokeFunction",), resources=tuple(sorted(functions))
    )
    yield Statement(sid="Queues", actions=("sqs:SendMessage",), resources=tuple(sorted(queues)))
