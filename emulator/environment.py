"""The environment that makes an ordinary AWS client take the emulator for AWS."""

import json
import os
import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from emulator.api import ACCOUNT, REGION
from emulator.files import write_atomic

DEFAULT_BUCKET = f"sagemaker-{REGION}-{ACCOUNT}"
"""The name the SageMaker SDK would derive for itself."""

_FOREIGN = re.compile(
    "AWS_(PROFILE|DEFAULT_PROFILE|SESSION_TOKEN|SECURITY_TOKEN|CREDENTIAL_EXPIRATION|ROLE_.*"
    "|WEB_IDENTITY_.*|CONTAINER_.*|BEARER_TOKEN_.*|ENDPOINT_URL_.*|IGNORE_CONFIGURED_ENDPOINT_URLS"
    "|USE_(FIPS|DUALSTACK)_ENDPOINT)"
)


def environment(url: str, state: Path) -> dict[str, str]:
    """Variables for a client process. Writes the SDK's defaults file into ``state``."""
    values = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "emulator",
        "AWS_SECRET_ACCESS_KEY": "emulator",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_VALIDATE_ROLE": "false",  # its check needs iam:SimulatePrincipalPolicy
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": str(_sdk_defaults(state)),
    }
    if urllib.request.getproxies():  # a proxy cannot reach this machine's loopback
        for name in ("NO_PROXY", "no_proxy"):
            values[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))
    return values


def foreign(outer: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """Names in ``outer`` that must not reach a client beside ``ours``: real credentials and
    settings that lead elsewhere (a profile, a session token, an endpoint for one service)."""
    return sorted(name for name in outer if _FOREIGN.fullmatch(name) and name not in ours)


def _sdk_defaults(state: Path) -> Path:
    """The SageMaker SDK's defaults config: no telemetry (there is no variable for it), and the
    default bucket, which the SDK would else derive from a call to the real STS: its session code
    hard-codes https://sts.<region>.amazonaws.com, whatever AWS_ENDPOINT_URL says."""
    modules = {"TelemetryOptOut": True, "Session": {"DefaultS3Bucket": DEFAULT_BUCKET}}
    config = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": modules}}}
    path = state / "sagemaker-sdk.yaml"  # JSON is YAML
    write_atomic(path, json.dumps(config).encode())
    return path
