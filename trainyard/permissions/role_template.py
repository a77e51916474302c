"""The roles as CloudFormation: written from the derived policies, read back for a check."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from trainyard.common.errors import DefinitionError, nearest
from trainyard.language.expressions import ExpressionError
from trainyard.permissions import pipeline_role
from trainyard.permissions.job_role import statements
from trainyard.permissions.pipeline_subject import Subject, role_parts
from trainyard.permissions.statements import Gap, Statement, policy
from trainyard.permissions.step_requests import all_requests, job_roles
from trainyard.read_yaml import BoundedLoader, load_yaml

BOUNDARY = "PermissionsBoundary"
"""Parameter of the template, and property of a role."""
HAS_BOUNDARY = "HasBoundary"
BOUNDARY_PARAMETER = {
    BOUNDARY: {
        "Type": "String",
        "Default": "",
        "Description": "ARN of the permissions boundary that roles of this account must have",
    }
}


def role_resources(
    subject: Subject, policies: Mapping[str, dict], *, allow_shared: bool = False
) -> dict[str, dict[str, Any]]:
    """Return logical ID → CloudFormation's resource of each role and policy: what any language of
    infrastructure is written from.

    ``allow_shared``: whether pipeline and jobs may share one role, which then has both policies.

    Raises:
        DefinitionError: the pipeline and its jobs share one role, the jobs have several, or two
            roles have one name.
    """
    role_names = job_roles(subject)
    if len(role_names) != 1 or (subject.role in role_names and not allow_shared):
        raise DefinitionError(
            f"pipeline {subject.name}: its role is {subject.role}, its jobs' "
            f"{', '.join(role_names) or 'none'}; the template gives each a role of its own: "
            "name another in the jobs; in a recipe, set aws.job_role to another role than aws.role"
        )
    resources = {
        role.logical: role.resource(subject, policies[role.name]) for role in roles(subject)
    }
    if subject.role in role_names:
        _join(resources["PipelineRole"]["Properties"], resources.pop("JobRole")["Properties"])
    owners: dict[str, str] = {}
    for logical, resource in resources.items():
        if name := resource["Properties"].get("RoleName"):
            # IAM's names are unique in an account, whatever their path and case.
            other = owners.setdefault(name.lower(), logical)
            if other != logical:
                raise DefinitionError(
                    f"pipeline {subject.name}: {other} and {logical} are both called {name!r}, and "
                    "an account has one role of a name, whatever its path; name one of them "
                    "otherwise; in a recipe: aws.role, aws.job_role"
                )
    return resources


def template(
    subject: Subject,
    policies: Mapping[str, dict],
    gaps: Mapping[str, list[str]] | None = None,
    *,
    allow_shared: bool = False,
) -> dict[str, Any]:
    """Return a CloudFormation template with the roles; account and region are where it is deployed.

    ``gaps``: role → what its policy lacks and no definition contains; they go into its Metadata.
    ``allow_shared``: whether pipeline and jobs may share one role, which then has both policies.

    Raises:
        DefinitionError: the roles cannot be told apart, as in :func:`role_resources`.
    """
    role_definitions = role_resources(subject, policies, allow_shared=allow_shared)
    substitute = _Substitution(subject)
    resources = {}
    for logical, definition in role_definitions.items():
        resources[logical] = resource = substitute.apply(definition)
        # CloudFormation tags no managed policy.
        if subject.tags and resource["Type"] == "AWS::IAM::Role":
            tags = [{"Key": k, "Value": v} for k, v in sorted(subject.tags.items())]
            resource["Properties"]["Tags"] = tags
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Least-privilege roles of the SageMaker pipeline {subject.name}",
        **({"Metadata": {"Gaps": dict(gaps)}} if gaps else {}),
        "Parameters": substitute.parameters(resources) | BOUNDARY_PARAMETER,
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


def _join(role: dict[str, Any], jobs: dict[str, Any]) -> None:
    """Give the pipeline's role the policy of its jobs', too, and their trust."""
    role["Policies"] += [policy | {"PolicyName": "derived-jobs"} for policy in jobs["Policies"]]
    sources, job_sources = (
        resource["AssumeRolePolicyDocument"]["Statement"][0]["Condition"]["ArnLike"][
            "aws:SourceArn"
        ]
        for resource in (role, jobs)
    )
    sources += job_sources


class _Substitution:
    """Replaces one account's values by CloudFormation's names."""

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

    def parameters(self, resources: Mapping[str, Any]) -> dict[str, Any]:
        """Return those that the resources refer to: a key's alias stands in conditions only."""
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

    def apply(self, value: Any) -> Any:
        """Return ``value`` with ``Fn::Sub`` in place of every ARN of this account or bucket."""
        if isinstance(value, dict):
            return {key: self.apply(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.apply(inner) for inner in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> Any:
        result = text
        for pattern, name in self._names:
            # Without a key there is no pattern, and an empty one would match everywhere.
            if pattern:
                result = re.sub(pattern, name, result)
        if result == "${KmsKeyArn}":
            return {"Ref": "KmsKeyArn"}
        return text if result == text else {"Fn::Sub": result}


class _Dumper(yaml.SafeDumper):
    """Lists indented under their keys, and no anchors: as people write templates."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def dump(document: Mapping[str, Any]) -> str:
    """Return YAML, in the order of the document."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


class _Loader(BoundedLoader):
    """Reads CloudFormation's short forms (``!Sub``) as their long ones."""


def _long_form(loader: _Loader, suffix: str, node: Any) -> dict[str, Any]:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        return {name: value.split(".", 1) if suffix == "GetAtt" else value}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _long_form)


def read(text: str, source: str) -> dict[str, Any]:
    """Read a template or a policy from YAML or JSON.

    Raises:
        DefinitionError: it is neither.
    """
    try:
        document = load_yaml(text, _Loader)
    except yaml.YAMLError as error:
        raise DefinitionError(f"{source}: is neither YAML nor JSON: {error}") from None
    if not isinstance(document, dict):
        raise DefinitionError(f"{source}: expected a policy or a template, not {document!r:.60}")
    return document


def policies_in(
    document: Mapping[str, Any], subject: Subject, source: str
) -> dict[str, dict[str, Any]]:
    """Return role → its policy in a template like ours, its parameters at their defaults.

    Raises:
        DefinitionError: a role is missing, or a value cannot be known without deploying.
    """
    names = {
        "AWS::Partition": subject.partition,
        "AWS::Region": subject.region,
        "AWS::AccountId": subject.account,
        **{k: p.get("Default") for k, p in document.get("Parameters", {}).items()},
    }
    policies = {}
    for entry in roles(subject):
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
                f"{source}: {logical}: has ManagedPolicyArns, and what those allow stands elsewhere"
            )
        statements = [s for policy in documents for s in policy["Statement"]]
        policies[role] = {
            "Statement": _resolve_references(statements, names, f"{source}: {logical}")
        }
    return policies


def _resolve_references(value: Any, names: Mapping[str, str], location: str) -> Any:
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


def service_role(
    arn_path: str, service: str, sources: list[str], policy: dict[str, Any], description: str
) -> dict[str, Any]:
    """Return a role that the service assumes only on behalf of the ARNs ``sources``.

    ``arn_path`` is the part of its ARN after ``role/``. Trust is bound as in the developer guide,
    "Cross-service confused deputy prevention", sections Pipelines, Processing and Training.
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


def managed_policy(name: str, policy: dict[str, Any], description: str) -> dict[str, Any]:
    """Return a policy for existing roles."""
    properties = {"ManagedPolicyName": name, "Description": description, "PolicyDocument": policy}
    return {"Type": "AWS::IAM::ManagedPolicy", "Properties": properties}


# The roles whose policies can be derived; all register themselves, an application's, too.


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role around a pipeline, or a policy for existing roles."""

    name: str
    logical: str
    """Logical ID of its resource in the template."""

    place: int
    """Place among the others."""

    resource: Callable[[Subject, dict[str, Any]], dict[str, Any]]
    """Return CloudFormation's resource for a pipeline and the derived policy."""

    statements: Callable[[Subject], Iterator[Statement | Gap]]

    exists: Callable[[Subject], bool] = lambda subject: True
    """Return whether the pipeline needs it."""


_ROLES: dict[str, Role] = {}


def role(name: str, **fields: Any) -> Callable[[Callable], Callable]:
    """Register the role whose statements the function yields; ``fields`` are :class:`Role`'s."""

    def register(statements: Callable[[Subject], Iterator[Statement | Gap]]) -> Callable:
        if name in _ROLES:
            raise ValueError(f"{statements.__module__}: there is a role {name} already")
        _ROLES[name] = Role(name=name, statements=statements, **fields)
        return statements

    return register


def roles(subject: Subject | None = None) -> list[Role]:
    """Return every role, or those that a pipeline needs, in the order in which a template and
    messages name them.
    """
    selection = (role for role in _ROLES.values() if subject is None or role.exists(subject))
    return sorted(selection, key=lambda role: role.place)


def role_named(name: str) -> Role:
    """Return the role ``name``.

    Raises:
        DefinitionError: there is no such role.
    """
    if name not in _ROLES:
        names = [role.name for role in roles()]
        raise DefinitionError(f"--role {name}: is not a role; {nearest(name, names)}")
    return _ROLES[name]


# Derive each role's policy. This module has the roles that every pipeline has.


def derive(subject: Subject, name: str, job_role: str | None = None) -> dict[str, Any]:
    """Return the policy document of one role; ``job_role`` chooses among several that jobs assume.

    Raises:
        DefinitionError: the role does not exist, or the document is not a definition.
    """
    return policy(_statements(subject, name, job_role))


def missing(subject: Subject, name: str, job_role: str | None = None) -> list[str]:
    """Return the role's needs beyond :func:`derive`'s policy that no definition has, by step.

    Raises:
        DefinitionError: see :func:`derive`.
    """
    results = _statements(subject, name, job_role)
    return list(dict.fromkeys(gap.says for gap in results if isinstance(gap, Gap)))


def _statements(subject: Subject, name: str, job_role: str | None) -> list[Statement | Gap]:
    role = role_named(name)
    try:
        return list(role.statements(replace(subject, job_role=job_role)))
    except ExpressionError as error:
        raise DefinitionError(f"pipeline {subject.name}: {error}") from None
    # The JSON comes from users; validation checks field by field whether it is a definition.
    except (AttributeError, KeyError, TypeError) as error:
        raise DefinitionError(
            f"pipeline {subject.name}: is not a pipeline definition ({error!r}): trainyard "
            "validate says what is wrong with it"
        ) from error


def _job_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    types = {step.type for step, _ in all_requests(subject)}
    # Models, endpoints and tuning jobs assume it under ARNs of their own.
    plain = types <= {"Processing", "Training", "QualityCheck", "ClarifyCheck"}
    kinds = ("processing-job/*", "training-job/*") if plain else ("*",)
    sources = [subject.arn("sagemaker", kind) for kind in kinds]
    name = role_parts(job_roles(subject)[0])[2]
    return service_role(name, "sagemaker", sources, policy, "Runs the jobs")


@role("job", logical="JobRole", place=1, resource=_job_role)
def job_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Iterate over the statements of the jobs' role."""
    role_names = job_roles(subject)
    if subject.job_role is None and len(role_names) > 1:
        raise DefinitionError(
            f"the jobs assume {len(role_names)} roles: choose one with --job-role: "
            f"{', '.join(role_names)}"
        )
    first = next(iter(role_names), subject.role)
    return statements(subject, subject.job_role or first)


def _pipeline_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    sources = [subject.arn("sagemaker", f"pipeline/{subject.name}/*")]
    description = "Makes the jobs and registers the model"
    return service_role(role_parts(subject.role)[2], "sagemaker", sources, policy, description)


role("pipeline", logical="PipelineRole", place=2, resource=_pipeline_role)(pipeline_role.statements)


def _events_role(subject: Subject, policy: dict[str, Any]) -> dict[str, Any]:
    sources = [subject.arn("events", f"rule/{subject.name}-*")]
    name = f"{subject.name}-events"
    return service_role(name, "events", sources, policy, "Starts on a schedule")


@role("events", logical="EventsRole", place=5, resource=_events_role)
def events_statements(subject: Subject) -> Iterator[Statement]:
    """Start the pipeline on a schedule.

    Messages about a run's end need no role: EventBridge publishes to SNS by the topic's own policy,
    and its user guide ("Using resource-based policies") warns against a role there.
    """
    yield Statement(
        sid="StartOnSchedule",
        actions=("sagemaker:StartPipelineExecution",),
        resources=(subject.arn("sagemaker", f"pipeline/{subject.name}"),),
    )
