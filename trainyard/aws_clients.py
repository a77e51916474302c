"""Create clients for AWS or AWS_ENDPOINT_URL, and turn botocore's errors into Trainyard's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
)

from trainyard.common.errors import ServiceError


def create_client(
    service: str, region: str | None = None, session: boto3.Session | None = None
) -> Any:
    """Create a boto3 client. By default, region and credentials are those of the environment.

    ``session``: a session with other credentials.
    """
    config = Config(retries={"mode": "standard", "max_attempts": 5}, user_agent_extra="trainyard")
    with service_errors(service):
        # boto3 itself reads only AWS_DEFAULT_REGION.
        region_name = region or os.environ.get("AWS_REGION")
        return (session or boto3).client(service, region_name=region_name, config=config)


def assume_role(role: str, name: str, region: str | None = None) -> boto3.Session:
    """Return a session with credentials of the role with this ARN; ``name`` is the session's name.

    Raises:
        ServiceError: the role's trust policy or the caller's policies do not allow it.
    """
    with service_errors(f"assuming role {role}"):
        answer = create_client("sts", region).assume_role(RoleArn=role, RoleSessionName=name)
    keys = answer["Credentials"]
    return boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])


@contextmanager
def service_errors(action: str) -> Iterator[None]:
    """Turn botocore's errors inside the block into a ServiceError that says what was tried.

    Raises:
        ServiceError: the request was refused, the service cannot be reached, or there are no
            credentials or no region.
    """
    try:
        yield
    except ClientError as error:
        detail = error.response.get("Error", {})
        raise ServiceError(
            f"{action}: {error.operation_name} was refused: {detail.get('Code')}: "
            f"{detail.get('Message')}"
        ) from None
    except EndpointConnectionError as error:
        endpoint_url = urlsplit(error.kwargs["endpoint_url"])
        raise ServiceError(
            f"{action}: nothing answers at {endpoint_url.scheme}://{endpoint_url.netloc}; start "
            "the "
            "emulator (python -m trainyard emulator) and set what it prints, or unset "
            "AWS_ENDPOINT_URL to use AWS"
        ) from None
    except NoCredentialsError:
        raise ServiceError(
            f"{action}: no AWS credentials; log in (aws sso login), or put "
            "`python -m trainyard run --` before the command, which runs it against the emulator"
        ) from None
    except NoRegionError:
        raise ServiceError(f"{action}: no region; set AWS_REGION or aws.region") from None
    except BotoCoreError as error:
        raise ServiceError(f"{action}: {error}") from None


def read_error_code(error: ClientError) -> str:
    """Return the service's error code, such as ``ResourceNotFound`` or ``404``."""
    return error.response.get("Error", {}).get("Code", "")
