"""The roles whose policies are derived, and the CloudFormation template of them: write it from the
policies, and read it back to compare it.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from trainyard.common.errors import DefinitionError, suggest_nearest
from trainyard.language.expressions import ExpressionError
from trainyard.permissions import pipeline_role
from trainyard.permissions.job_role import iter_statements
from trainyard.permissions.pipeline_subject import Subject, split_role_arn
from trainyard.permissions.statements import Gap, Statement, build_policy
from trainyard.permissions.step_requests import iter_all_requests, list_job_roles
from trainyard.read_yaml import BoundedLoader, load_yaml

BOUNDARY = "PermissionsBoundary"
"""Name of the template's parameter, and of the property of a role, for a permissions boundary."""
HAS_BOUNDARY = "HasBoundary"
BOUNDARY_PARAMETER = {
    BOUNDARY: {
        "Type": "String",
        "Default": "",
        "Description": "ARN of the permissions boundary that roles of this account must have",
    }
}


def build_role_resources(
    subject: Subject, policies: Mapping[str, dict], *, allow_shared: bool = False
) -> dict[str, dict[str, Any]]:
    """Return a mapping of logical IDs to the CloudFormation resources of roles and policies.

    The templates in all infrastructure-as-code languages are written from it.

    Args:
        subject: the pipeline.
        policies: mapping of a role's name to its policy document.
        allow_shared: whether pipeline and jobs may share one role, which then has both policies.

    Raises:
        DefinitionError: the jobs do not have exactly one role, the pipeline and its jobs share a
            role although that is not allowed, or two roles have the same name.
    """
    role_names = list_job_roles(subject)
    if len(role_names) != 1 or (subject.role in role_names and not allow_shared):
        raise DefinitionError(
            f"pipeline {subject.name}: its role is {subject.role}, its jobs' "
            f"{', '.join(role_names) or 'none'}; the template needs one role for all jobs, other "
            "than the pipeline's: change the jobs' role; in a recipe, set aws.job_role to a role "
            "other than aws.role"
        )
    resources = {
        role.logical: role.resource(subject, policies[role.name]) for role in list_roles(subject)
    }
    if subject.role in role_names:
        _merge_job_role(
            resources["PipelineRole"]["Properties"], resources.pop("JobRole")["Properties"]
        )
    owners: dict[str, str] = {}
    for logical, resource in resources.items():
        if name := resource["Properties"].get("RoleName"):
            # In an account, the names of roles are unique regardless of path and case.
            other = owners.setdefault(name.lower(), logical)
            if other != logical:
                raise DefinitionError(
                    f"pipeline {subject.name}: {other} and {logical} are both called {name!r}, but "
                    "role names are unique in an account, whatever the path; rename one of them; "
                    "in a recipe: aws.role, aws.job_role"
                )
    return resources


def build_template(
    subject: Subject,
    policies: Mapping[str, dict],
    gaps: Mapping[str, list[str]] | None = None,
    *,
    allow_shared: bool = False,
) -> dict[str, Any]:
    """Return a CloudFormation template with the roles.

    It has no fixed account and region: they are those in which it is deployed.

    Args:
        subject: the pipeline.
        policies: mapping of a role's name to its policy document.
        gaps: mapping of a role's name to what its policy does not contain because it cannot be
            derived; they become the template's Metadata.
        allow_shared: whether pipeline and jobs may share one role, which then has both policies.

    Raises:
        DefinitionError: as in :func:`build_role_resources`.
    """
    role_definitions = build_role_resources(subject, policies, allow_shared=allow_shared)
    substitute = _Substitution(subject)
    resources = {}
    for logical, definition in role_definitions.items():
        resources[logical] = resource = substitute.substitute_arns(definition)
        # CloudFormation cannot tag managed policies.
        if subject.tags and resource["Type"] == "AWS::IAM::Role":
            tags = [{"Key": k, "Value": v} for k, v in sorted(subject.tags.items())]
            resource["Properties"]["Tags"] = tags
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Least-privilege roles of the SageMaker pipeline {subject.name}",
        **({"Metadata": {"Gaps": dict(gaps)}} if gaps else {}),
        "Parameters": substitute.declare_parameters(resources) | BOUNDARY_PARAMETER,
        "Conditions": {HAS_BOUNDARY: {"Fn::Not": [{"Fn::Equals": [{"Ref": BOUNDARY}, ""]}]}},
        "Resources": resources,
        "Outputs": {
            f"{name}Arn": {
                "Value": {"Ref": name}
                if name.endswith("Policy")
                else {"Fn::GetAtt": [name, "Arn"]},
                "Export": {"Name": {"Fn::Sub": f"${{AWS::StackName}}-{name}Arn"}},
            }
            for name in resources
        },
    }


def _merge_job_role(role: dict[str, Any], jobs: dict[str, Any]) -> None:
    """Add the policies and the trusted sources of the jobs' role to the pipeline's role."""
    role["Policies"] += [policy | {"PolicyName": "derived-jobs"} for policy in jobs["Policies"]]
    sources, job_sources = (
        resource["AssumeRolePolicyDocument"]["Statement"][0]["Condition"]["ArnLike"][
            "aws:SourceArn"
        ]
        for resource in (role, jobs)
    )
    sources += job_sources


class _Substitution:
    """Replaces account, region, bucket and key in ARNs by CloudFormation's parameters."""

    def __init__(self, subject: Subject) -> None:
        bucket = (subject.root or "s3:///").split("/")[2]
        self._parameters = {"ArtifactBucket": bucket, "KmsKeyArn": subject.kms_key or ""}
        self._names = [
            (re.escape(self._parameters["KmsKeyArn"]), "${KmsKeyArn}"),
            (rf"(?<=:s3:::){re.escape(bucket)}(?=$|/)", "${ArtifactBucket}"),
            (rf"^arn:{re.escape(subject.partition)}:", "arn:${AWS::Partition}:"),
            (rf"(?<=:){re.escape(subject.region)}(?=:)", "${AWS::Region}"),
            (rf"(?<=:){subject.account}(?=:)", "${AWS::AccountId}"),
        ]

    def declare_parameters(self, resources: Mapping[str, Any]) -> dict[str, Any]:
        """Return the declarations of the parameters that ``resources`` refer to.

        A KMS key that is given as an alias occurs only in conditions, so it is not a parameter.
        """
        descriptions = {
            "ArtifactBucket": "Bucket of code, shards, models and checkpoints (infra/storage.yaml)",
            "KmsKeyArn": "Key of volumes and outputs (infra/storage.yaml)",
        }
        text = json.dumps(resources)
        return {
            name: {"Type": "String", "Default": value, "Description": descriptions[name]}
            for name, value in self._parameters.items()
            if value and (f"${{{name}}}" in text or f'{{"Ref": "{name}"}}' in text)
        }

    def substitute_arns(self, value: Any) -> Any:
        """Return ``value`` with ``Fn::Sub`` instead of every ARN of this account or bucket."""
        if isinstance(value, dict):
            return {key: self.substitute_arns(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.substitute_arns(inner) for inner in value]
        return self._substitute_text(value) if isinstance(value, str) else value

    def _substitute_text(self, text: str) -> Any:
        """Return a text with this account's values replaced; unchanged if it has none."""
        result = text
        for pattern, name in self._names:
            # Without a key the pattern is empty, and would match everywhere.
            if pattern:
                result = re.sub(pattern, name, result)
        if result == "${KmsKeyArn}":
            return {"Ref": "KmsKeyArn"}
        return text if result == text else {"Fn::Sub": result}


class _Dumper(yaml.SafeDumper):
    """Indents lists under their keys and writes no anchors, as people do in templates."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that a repeated object is written in full instead of as an alias."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent as PyYAML does, but never write list items at the indentation of their key."""
        return super().increase_indent(flow, False)


def dump_yaml(document: Mapping[str, Any]) -> str:
    """Return the document as YAML, with its keys in their order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


class _Loader(BoundedLoader):
    """Reads CloudFormation's short forms (``!Sub``) as their long ones."""


def _construct_long_form(loader: _Loader, suffix: str, node: Any) -> dict[str, Any]:
    """Return ``{"Fn::Sub": …}`` for ``!Sub …``, and so on; ``suffix`` is the tag without "!"."""
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        return {name: value.split(".", 1) if suffix == "GetAtt" else value}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _construct_long_form)


def parse_template(text: str, source: str) -> dict[str, Any]:
    """Parse a template or a policy in YAML or JSON; ``source`` names it in messages.

    Raises:
        DefinitionError: the text is neither YAML nor JSON, or not a mapping.
    """
    try:
        document = load_yaml(text, _Loader)
    except yaml.YAMLError as error:
        raise DefinitionError(f"{source}: is neither YAML nor JSON: {error}") from None
    if not isinstance(document, dict):
        raise DefinitionError(f"{source}: expected a policy or a template, not {document!r:.60}")
    return document


def extract_policies(
    document: Mapping[str, Any], subject: Subject, source: str
) -> dict[str, dict[str, Any]]:
    """Return a mapping of a role's name to its policy in a template, with parameters' defaults.

    The template must have the same logical IDs as that of :func:`build_template`.

    Raises:
        DefinitionError: a role is missing or has managed policies, or a value is known only when
            the template is deployed.
    """
    names = {
        "AWS::Partition": subject.partition,
        "AWS::Region": subject.region,
        "AWS::AccountId": subject.account,
        **{k: p.get("Default") for k, p in document.get("Parameters", {}).items()},
    }
    policies = {}
    for entry in list_roles(subject):
        role, logical = entry.name, entry.logical
        resource = document["Resources"].get(logical)
        if resource is None:
            raise DefinitionError(f"{source}: has no resource {logical}, the policy of role {role}")
        properties = resource["Properties"]
        documents = (
            [properties["PolicyDocument"]]
            if "PolicyDocument" in properties
            else [policy["PolicyDocument"] for policy in properties.get("Policies", ())]
        )
        if properties.get("ManagedPolicyArns"):
            raise DefinitionError(
                f"{source}: {logical}: has ManagedPolicyArns, whose permissions are not in the file"
            )
        statements = [s for policy in documents for s in policy["Statement"]]
        policies[role] = {
            "Statement": _resolve_references(statements, names, f"{source}: {logical}")
        }
    return policies


def _resolve_references(value: Any, names: Mapping[str, str], location: str) -> Any:
    """Return ``value`` with ``Ref`` and ``Fn::Sub`` replaced by the values in ``names``.

    Raises:
        DefinitionError: it has another function, or a name without a value.
    """
    if isinstance(value, list):
        return [_resolve_references(inner, names, location) for inner in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Fn::Sub"} and isinstance(value["Fn::Sub"], str):
        return re.sub(
            r"\$\{([^}!]+)\}", lambda m: _resolve_name(m[1], names, location), value["Fn::Sub"]
        )
    if set(value) == {"Ref"}:
        return _resolve_name(value["Ref"], names, location)
    if any(key.startswith("Fn::") for key in value):
        raise DefinitionError(
            f"{location}: {value} is not known before it is deployed; use Fn::Sub or Ref of a "
            "parameter with a default"
        )
    return {key: _resolve_references(inner, names, location) for key, inner in value.items()}


def _resolve_name(name: str, names: Mapping[str, str], location: str) -> str:
    if names.get(name) is None:
        raise DefinitionError(f"{location}: ${{{name}}} has no value before it is deployed")
    return str(names[name])


def build_service_role(
    arn_path: str, service: str, sources: list[str], policy: dict[str, Any], description: str
) -> dict[str, Any]:
    """Return the CloudFormation resource of a role that only a service can assume.

    The trust policy is limited to the ARNs in ``sources``, as in the developer guide,
    "Cross-service confused deputy prevention", sections Pipelines, Processing and Training.

    Args:
        arn_path: part of the role's ARN after ``role/``.
        service: first part of the service's name, such as ``sagemaker``.
        sources: patterns of ARNs on whose behalf the service may assume the role.
        policy: policy document of the role.
        description: description of the role.
    """
    folder, _, plain = arn_path.rpartition("/")
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": plain,
            **({"Path": f"/{folder}/"} if folder else {}),
            "Description": description,
            BOUNDARY: {"Fn::If": [HAS_BOUNDARY, {"Ref": BOUNDARY}, {"Ref": "AWS::NoValue"}]},
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": f"{service}.amazonaws.com"},
                        "Action": "sts:AssumeRole",
                        "Condition": {"ArnLike": {"aws:SourceArn": sources}},
                    }
                ],
            },
            "Policies": [{"PolicyName": "derived", "PolicyDocument": policy}],
        },
    }


def build_managed_policy(name: str, policy: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the CloudFormation resource of a managed policy, to be attached to existing roles."""
    properties = {"ManagedPolicyName": name, "Description": description, "PolicyDocument": policy}
    return {"Type": "AWS::IAM::ManagedPolicy", "Properties": properties}


# Registry of the roles whose policies can be derived. Roles register themselves by the decorator
# ``register_role``, also those of an application that builds on Trainyard.


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role around a pipeline, or a policy for existing roles."""

    name: str
    logical: str
    """Logical ID of its resource in the template."""

    place: int
    """Number by which the roles are sorted."""

    resource: Callable[[Subject, dict[str, Any]], dict[str, Any]]
    """Returns the CloudFormation resource for a pipeline and the derived policy."""

    statements: Callable[[Subject], Iterator[Statement | Gap]]
    """Derives the statements of the policy, and gaps, for a pipeline."""

    exists: Callable[[Subject], bool] = lambda subject: True
    """Returns whether the pipeline needs the role."""


_ROLES: dict[str, Role] = {}


def register_role(name: str, **fields: Any) -> Callable[[Callable], Callable]:
    """Decorate a function that yields a role's statements, to register the role.

    ``fields`` are the other fields of :class:`Role`.

    Raises:
        ValueError: a role of that name is registered already.
    """

    def register(statements: Callable[[Subject], Iterator[Statement | Gap]]) -> Callable:
        if name in _ROLES:
            raise ValueError(f"{statements.__module__}: a role {name} is already registered")
        _ROLES[name] = Role(name=name, statements=statements, **fields)
        return statements

    return register


def list_roles(subject: Subject | None = None) -> list[Role]:
    """Return the roles that the pipeline needs (all roles if it is None), in the order of templates
    and messages.
    """
    selection = (role for role in _ROLES.values() if subject is None or role.exists(subject))
    return sorted(selection, key=lambda role: role.place)


def find_role(name: str) -> Role:
    """Return the role ``name``.

    Raises:
        DefinitionError: there is no such role.
    """
    if name not in _ROLES:
        names = [role.name for role in list_roles()]
        raise DefinitionError(f"--role {name}: is not a role; {suggest_nearest(name, names)}")
    return _ROLES[name]


# Derive the policy of each role. The roles that every pipeline has are declared here.


def derive_policy(subject: Subject, name: str, job_role: str | None = None) -> dict[str, Any]:
    """Return the derived policy document of one role.

    Args:
        subject: the pipeline.
        name: name of the role, such as ``job``.
        job_role: ARN of one of several roles that jobs assume; None if they assume only one.

    Raises:
        DefinitionError: the role does not exist, or the document is not a definition.
    """
    return build_policy(_list_statements(subject, name, job_role))


def list_gaps(subject: Subject, name: str, job_role: str | None = None) -> list[str]:
    """Return the gaps of a role: what it needs in addition to the policy of :func:`derive_policy`.

    Raises:
        DefinitionError: as in :func:`derive_policy`.
    """
    results = _list_statements(subject, name, job_role)
    return list(dict.fromkeys(gap.says for gap in results if isinstance(gap, Gap)))


def _list_statements(subject: Subject, name: str, job_role: str | None) -> list[Statement | Gap]:
    """Return the statements and gaps of a role; report an invalid definition as DefinitionError."""
    role = find_role(name)
    try:
        return list(role.statements(replace(subject, job_role=job_role)))
    except ExpressionError as error:
        raise DefinitionError(f"pipeline {subject.name}: {error}") from None
    # The JSON comes from users, and may not be a definition: validation reports what is wrong.
    except (AttributeError, KeyError, TypeError) as error:
        raise DefinitionError(
            f"pipeline {subject.name}: is not a pipeline definition ({error!r}): trainyard "
            "validate says what is wrong with it"
        ) from error


def _build_job_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    """Return the CloudFormation resource of the jobs' role."""
    types = {step.type for step, _ in iter_all_requests(subject)}
    # Models, endpoints and tuning jobs assume the role as well, with other source ARNs.
    plain = types <= {"Processing", "Training", "QualityCheck", "ClarifyCheck"}
    kinds = ("processing-job/*", "training-job/*") if plain else ("*",)
    sources = [subject.build_arn("sagemaker", kind) for kind in kinds]
    name = split_role_arn(list_job_roles(subject)[0])[2]
    return build_service_role(name, "sagemaker", sources, policy, "Runs the jobs")


@register_role("job", logical="JobRole", place=1, resource=_build_job_role)
def iter_job_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Iterate over the statements of the jobs' role."""
    role_names = list_job_roles(subject)
    if subject.job_role is None and len(role_names) > 1:
        raise DefinitionError(
            f"the jobs assume {len(role_names)} roles: choose one with --job-role: "
            f"{', '.join(role_names)}"
        )
    first = next(iter(role_names), subject.role)
    return iter_statements(subject, subject.job_role or first)


def _build_pipeline_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    """Return the CloudFormation resource of the pipeline's role."""
    sources = [subject.build_arn("sagemaker", f"pipeline/{subject.name}/*")]
    description = "Makes the jobs and registers the model"
    return build_service_role(
        split_role_arn(subject.role)[2], "sagemaker", sources, policy, description
    )


register_role("pipeline", logical="PipelineRole", place=2, resource=_build_pipeline_role)(
    pipeline_role.iter_statements
)


def _build_events_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    """Return the CloudFormation resource of the role with which EventBridge starts the pipeline."""
    sources = [subject.build_arn("events", f"rule/{subject.name}-*")]
    name = f"{subject.name}-events"
    return build_service_role(name, "events", sources, policy, "Starts on a schedule")


@register_role("events", logical="EventsRole", place=5, resource=_build_events_role)
def iter_events_statements(subject: Subject) -> Iterator[Statement]:
    """Yield the statement that lets EventBridge start the pipeline on a schedule.

    Messages about the end of an execution need no role: EventBridge publishes to SNS by the topic's
    own policy, and its user guide ("Using resource-based policies") warns against a role there.
    """
    yield Statement(
        sid="StartOnSchedule",
        actions=("sagemaker:StartPipelineExecution",),
        resources=(subject.build_arn("sagemaker", f"pipeline/{subject.name}"),),
    )
