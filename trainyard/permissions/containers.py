"""What any job's containers need: an image, a log, and interfaces in the VPC that they run in."""

from collections.abc import Iterator

from trainyard.permissions.statements import Statement
from trainyard.permissions.subject import Subject


def containers(
    subject: Subject, repositories: set[str], log_groups: set[str]
) -> Iterator[Statement]:
    """Images from ECR, logs and metrics into CloudWatch. ``repositories`` are ARNs."""
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
    # The service creates the group each time and expects to be told that it exists.
    yield Statement(
        sid="LogGroups",
        actions=("logs:CreateLogGroup", "logs:DescribeLogStreams"),
        resources=tuple(subject.arn("logs", f"log-group:{group}:*") for group in groups),
    )
    yield Statement(
        sid="Logs",
        actions=("logs:CreateLogStream", "logs:PutLogEvents"),
        resources=tuple(subject.arn("logs", f"log-group:{group}:log-stream:*") for group in groups),
    )
    yield Statement(
        sid="Metrics",
        actions=("cloudwatch:PutMetricData",),
        resources=("*",) if groups else (),
        conditions={
            "StringEquals": {"cloudwatch:namespace": tuple(g.removesuffix("/*") for g in groups)}
        },
    )


def network(subject: Subject, subnets: set[str], security_groups: set[str]) -> Iterator[Statement]:
    """The interfaces with which the service puts a job into the VPC.

    CreateNetworkInterface is bound by its subnets and groups. The others act on an interface that
    the service has made and named, so the subnet that it stands in binds them.
    """
    within = tuple(subject.arn("ec2", f"subnet/{subnet}") for subnet in sorted(subnets))
    groups = (subject.arn("ec2", f"security-group/{g}") for g in sorted(security_groups))
    interfaces = (subject.arn("ec2", "network-interface/*"),) if subnets else ()
    yield Statement(
        sid="CreateInterfaces",
        actions=("ec2:CreateNetworkInterface",),
        resources=tuple(sorted([*within, *groups, *interfaces])),
    )
    yield Statement(
        sid="Interfaces",
        actions=(
            "ec2:CreateNetworkInterfacePermission",
            "ec2:DeleteNetworkInterface",
            "ec2:DeleteNetworkInterfacePermission",
        ),
        resources=interfaces,
        conditions={"ArnEquals": {"ec2:Subnet": within}},
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
