"""Derive the policy of the role that jobs assume: access only to what their requests name."""

from collections.abc import Iterator, Mapping

from trainyard.permissions.pipeline_subject import Collector, Needs, Subject, build_key_arn
from trainyard.permissions.statements import Gap, Statement, minimize_patterns
from trainyard.permissions.step_requests import (
    BY_PIPELINE,
    COLLECTORS,
    NOT_DERIVED,
    Request,
    find_request_role,
    iter_all_requests,
)

MLFLOW_ACTIONS = tuple(
    f"sagemaker-mlflow:{action}"
    for action in (
        "CreateExperiment",
        "CreateRun",
        "GetExperiment",
        "GetExperimentByName",
        "GetRun",
        "LogBatch",
        "LogInputs",
        "LogMetric",
        "LogParam",
        "SetTag",
        "UpdateRun",
    )
)
"""Actions that are needed to record an MLflow run on a managed MLflow server: the IAM names of its
REST calls."""


def iter_gaps(subject: Subject) -> Iterator[Gap]:
    """Iterate over a gap for each part of the definition whose permissions are not derived."""
    for step in subject.values.steps:
        if step.type not in COLLECTORS and step.type not in BY_PIPELINE:
            reason = NOT_DERIVED.get(step.type, "the type is unknown")
            yield Gap(
                f"step {step.name}: permissions of its type {step.type} are not derived: {reason}"
            )
    if subject.document.get("MlflowConfig"):
        yield Gap("MlflowConfig: what MLflow needs to track the entire pipeline is not derived")


def collect_needs(subject: Subject, role: str) -> Needs:
    """Return the resources that jobs with the role ``role`` (an ARN) need to access."""
    job_needs = Needs()
    for step, request in iter_all_requests(subject):
        collector = Collector(subject, step, job_needs)
        with collector.record_gaps():
            assumed_role = find_request_role(subject, step, request)
            if assumed_role == role:
                COLLECTORS[step.type](collector, request.arguments)
            elif assumed_role is None:
                job_needs.gaps.append(_explain_unknown_role(collector, request))
    return job_needs


def _explain_unknown_role(collector: Collector, request: Request) -> str:
    """Return a gap's message about a job whose role is not known, with the data that it needs."""
    alone = Collector(collector.subject, collector.step, Needs())
    COLLECTORS[collector.step.type](alone, request.arguments)
    verbs = {"reads": alone.needs.reads, "writes": alone.needs.writes}
    phrases = [
        f"{verb} {', '.join(sorted(f's3://{b}/{key}' for b, key in locations))}"
        for verb, locations in verbs.items()
        if locations
    ]
    owner = (
        f"of the model {collector.resolve_text(request.model, 'ModelName')}, which no step creates"
        if request.model
        else "that is known only when the pipeline runs"
    )
    needs = f"; it {' and '.join(phrases)}" if phrases else ""
    return f"step {collector.step.name}: its work is done with the role {owner}{needs}"


def allow_keys(
    sid: str,
    keys: set[str],
    actions: tuple[str, ...],
    conditions: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
) -> Iterator[Statement]:
    """Iterate over statements that allow ``actions`` on the KMS keys with the ARNs ``keys``."""
    plain = tuple(sorted(key for key in keys if ":alias/" not in key))
    yield Statement(sid=sid, actions=actions, resources=plain, conditions=conditions or {})
    # IAM cannot allow cryptographic actions on an alias (KMS developer guide, "Use aliases to
    # control access to KMS keys"): the statement allows them on all keys that have the alias.
    aliases = sorted(key for key in keys - set(plain))
    names = tuple(key.rpartition(":")[2] for key in aliases)
    yield Statement(
        sid=f"{sid}ByAlias",
        actions=actions,
        resources=minimize_patterns(f"{key.rpartition(':')[0]}:key/*" for key in aliases),
        conditions={
            **(conditions or {}),
            "ForAnyValue:StringEquals": {"kms:ResourceAliases": names},
        },
    )


def iter_statements(subject: Subject, role: str) -> Iterator[Statement | Gap]:
    """Iterate over the statements, and the gaps, of the policy of a role that jobs assume."""
    yield from iter_gaps(subject)
    job_needs = collect_needs(subject, role)
    yield from map(Gap, dict.fromkeys(job_needs.gaps))
    yield from allow_storage("Read", subject, job_needs.reads, ("s3:GetObject",))
    yield from allow_listing(subject, job_needs.reads)
    yield from allow_storage("Write", subject, job_needs.writes, ("s3:PutObject",))
    yield from allow_keys(
        "DataKeys", job_needs.data_keys, ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey")
    )
    others = {build_key_arn(subject, key) for key in subject.read_keys if job_needs.reads}
    yield from allow_keys("InputKeys", others - job_needs.data_keys, ("kms:Decrypt",))
    # A KMS grant lets the service attach the encrypted volume; the condition allows grants only to
    # AWS services.
    grant = {"Bool": {"kms:GrantIsForAWSResource": ("true",)}}
    yield from allow_keys("VolumeKeys", job_needs.volume_keys, ("kms:CreateGrant",), grant)
    yield from allow_containers(subject, job_needs.repositories, job_needs.log_groups)
    yield from allow_network(subject, job_needs.subnets, job_needs.security_groups)
    yield from _allow_file_systems(subject, job_needs.file_systems)
    yield Statement(
        sid="Tracking", actions=MLFLOW_ACTIONS, resources=tuple(sorted(job_needs.trackers))
    )
    yield from allow_packages(job_needs.package_repositories)
    # Source: developer guide, "Auto-Rollback Configuration and Monitoring".
    yield Statement(
        sid="RollbackAlarms",
        actions=("cloudwatch:DescribeAlarms",),
        resources=tuple(
            subject.build_arn("cloudwatch", f"alarm:{a}") for a in sorted(job_needs.alarms)
        ),
    )


def _allow_file_systems(subject: Subject, systems: set[tuple[str, str]]) -> Iterator[Statement]:
    """Iterate over statements for the file systems of channels, with the actions that
    AmazonSageMakerFullAccess has for them.
    """
    lustre = [name for kind, name in systems if kind == "FSxLustre"]
    yield Statement(
        sid="FileSystems", actions=("fsx:DescribeFileSystems",), resources=("*",) if lustre else ()
    )
    others = sorted(name for kind, name in systems if kind == "EFS")
    yield Statement(
        sid="ElasticFileSystems",
        actions=("elasticfilesystem:DescribeFileSystems", "elasticfilesystem:DescribeMountTargets"),
        resources=tuple(
            subject.build_arn("elasticfilesystem", f"file-system/{file_system}")
            for file_system in others
        ),
    )


def allow_storage(
    sid: str, subject: Subject, patterns: set[tuple[str, str]], actions: tuple[str, ...]
) -> Iterator[Statement]:
    """Yield a statement that allows ``actions`` on S3 objects.

    ``patterns`` are (bucket, pattern of the key).
    """
    arns = (subject.build_bucket_arn(bucket, key) for bucket, key in patterns)
    yield Statement(sid=sid, actions=actions, resources=minimize_patterns(arns))


def allow_listing(subject: Subject, patterns: set[tuple[str, str]]) -> Iterator[Statement]:
    """Iterate over statements that allow ListBucket, one per bucket, for the given prefixes only.

    ``patterns`` are (bucket, pattern of the key).
    """
    for number, bucket in enumerate(sorted({bucket for bucket, _ in patterns})):
        prefixes = minimize_patterns(key for owner, key in patterns if owner == bucket)
        yield Statement(
            sid=f"List{number or ''}",
            actions=("s3:ListBucket",),
            resources=(subject.build_bucket_arn(bucket),),
            conditions={"StringLike": {"s3:prefix": prefixes}},
        )


def allow_containers(
    subject: Subject, repositories: set[str], log_groups: set[str]
) -> Iterator[Statement]:
    """Iterate over statements for pulling images from ECR, and writing logs and metrics.

    ``repositories`` are ARNs, ``log_groups`` names.
    """
    yield Statement(
        sid="RegistryLogin",
        actions=("ecr:GetAuthorizationToken",),
        resources=("*",) if repositories else (),
    )
    yield Statement(
        sid="Images",
        actions=(
            "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"
        ),
        resources=tuple(sorted(repositories)),
    )  # fmt: skip
    groups = sorted(log_groups)
    # The service tries to create the log group each time, and accepts that it already exists.
    yield Statement(
        sid="LogGroups",
        actions=("logs:CreateLogGroup", "logs:DescribeLogStreams"),
        resources=tuple(subject.build_arn("logs", f"log-group:{group}:*") for group in groups),
    )
    yield Statement(
        sid="Logs",
        actions=("logs:CreateLogStream", "logs:PutLogEvents"),
        resources=tuple(
            subject.build_arn("logs", f"log-group:{group}:log-stream:*") for group in groups
        ),
    )
    yield Statement(
        sid="Metrics",
        actions=("cloudwatch:PutMetricData",),
        resources=("*",) if groups else (),
        conditions={
            "StringEquals": {"cloudwatch:namespace": tuple(g.removesuffix("/*") for g in groups)}
        },
    )


def allow_packages(repositories: set[str]) -> Iterator[Statement]:
    """Iterate over statements for installing packages from CodeArtifact repositories (ARNs)."""
    domains = {
        f"{arn.partition(':repository/')[0]}:domain/{arn.split('/')[1]}" for arn in repositories
    }
    yield Statement(
        sid="PackageToken",
        actions=("codeartifact:GetAuthorizationToken",),
        resources=tuple(sorted(domains)),
    )
    yield Statement(
        sid="Packages",
        actions=("codeartifact:GetRepositoryEndpoint", "codeartifact:ReadFromRepository"),
        resources=tuple(sorted(repositories)),
    )
    yield Statement(
        sid="PackageBearer",
        actions=("sts:GetServiceBearerToken",),
        resources=("*",) if repositories else (),
        conditions={"StringEquals": {"sts:AWSServiceName": ("codeartifact.amazonaws.com",)}},
    )


def allow_network(
    subject: Subject, subnets: set[str], security_groups: set[str]
) -> Iterator[Statement]:
    """Iterate over statements for creating the network interfaces that connect a job to a VPC."""
    subnet_arns = tuple(subject.build_arn("ec2", f"subnet/{subnet}") for subnet in sorted(subnets))
    groups = (subject.build_arn("ec2", f"security-group/{g}") for g in sorted(security_groups))
    interfaces = (subject.build_arn("ec2", "network-interface/*"),) if subnets else ()
    yield Statement(
        sid="CreateInterfaces",
        actions=("ec2:CreateNetworkInterface",),
        resources=tuple(sorted([*subnet_arns, *groups, *interfaces])),
    )
    # These actions are on an interface that the service has created and named, so they can only be
    # limited by the subnet that it is in.
    yield Statement(
        sid="Interfaces",
        actions=(
            "ec2:CreateNetworkInterfacePermission",
            "ec2:DeleteNetworkInterface",
            "ec2:DeleteNetworkInterfacePermission",
        ),
        resources=interfaces,
        conditions={"ArnEquals": {"ec2:Subnet": subnet_arns}},
    )
    yield Statement(
        sid="LookAtNetwork",
        actions=(
            "ec2:DescribeDhcpOptions",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSubnets",
            "ec2:DescribeVpcs",
        ),
        resources=("*",) if subnets else (),
    )
