"""The environment of a client process, and settings that it must not keep."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import boto3.session
import botocore
import pytest
import yaml
from botocore import credentials, session, utils
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES

from tests.conftest import CHECKOUT
from trainyard.emulator.client_environment import list_conflicting_variables, prepare_environment
from trainyard.emulator.sagemaker.jobs.container_images import explain_unusable_image
from trainyard.emulator.server import serve_emulator


@pytest.fixture
def proxied_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a client behind a proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "intranet.example")
    return prepare_environment("http://127.0.0.1:1", tmp_path, ("key", "secret"))


def test_a_client_has_no_telemetry_an_image_and_the_loopback_beside_what_goes_round_a_proxy(
    proxied_environment,
):
    config = yaml.safe_load(
        Path(proxied_environment["SAGEMAKER_ADMIN_CONFIG_OVERRIDE"]).read_text()
    )
    assert config["SageMaker"]["PythonSDK"]["Modules"]["TelemetryOptOut"] is True
    assert explain_unusable_image(proxied_environment["SAGEMAKER_INTERNAL_IMAGE_URI"]) is None
    assert proxied_environment["NO_PROXY"] == "intranet.example,127.0.0.1,localhost"


def names_of_botocore() -> set[str]:
    """Return the variables that botocore and boto3 read: from the table of settings and the
    source.
    """
    listed = BOTOCORE_DEFAUT_SESSION_VARIABLES.values()
    several = [[name] if isinstance(name, str) else name or [] for _, name, *_ in listed]
    modules = (credentials, session, utils, botocore, boto3.session)
    written = re.findall(r"['\"](AWS_[A-Z_0-9]+)['\"]", "".join(map(inspect.getsource, modules)))
    return {*(name for names in several for name in names), *written}


# What each of these changes, if anything, is the form of a request or how long it is tried.
HARMLESS = {
    "AWS_CA_BUNDLE", "AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE", "AWS_DEFAULTS_MODE",
    "AWS_EXECUTION_ENV", "AWS_SDK_UA_APP_ID", "BOTOCORE_TCP_KEEPALIVE",
    "AWS_REQUEST_MIN_COMPRESSION_SIZE_BYTES", "AWS_DISABLE_REQUEST_COMPRESSION",
    "AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION",
    "AWS_METADATA_SERVICE_TIMEOUT", "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
}  # fmt: skip


def test_every_variable_of_botocore_is_ours_or_foreign_or_known_to_be_harmless(proxied_environment):
    names = names_of_botocore()
    assert len(names) > 40 and names >= HARMLESS
    kept = (
        names
        - proxied_environment.keys()
        - set(list_conflicting_variables(dict.fromkeys(names, "x"), proxied_environment))
    )
    assert kept == HARMLESS


def test_real_credentials_and_endpoints_are_foreign_and_harmless_settings_are_not(
    proxied_environment,
):
    real = ["AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_SESSION_TOKEN"]
    outer = dict.fromkeys([*real, "AWS_ACCESS_KEY_ID", "AWS_CA_BUNDLE", "AWS_PAGER", "HOME"], "x")
    assert list_conflicting_variables(outer, proxied_environment) == real


REAL = "https://elsewhere.example"
CONFIG = f"""[default]
region = eu-west-3
ignore_configured_endpoint_urls = true
use_fips_endpoint = true
services = mine
endpoint_url = {REAL}
credential_process = echo real
[services mine]
s3 =
  endpoint_url = {REAL}
sagemaker =
  endpoint_url = {REAL}
[profile real]
role_arn = arn:aws:iam::1:role/real
source_profile = default
"""
ASK = """
import json, boto3
found = {}
for service in ("s3", "sagemaker", "sagemaker-runtime", "logs", "sts", "iam", "codepipeline"):
    client = boto3.client(service)
    keys = client._request_signer._credentials
    where = client.meta.endpoint_url, client.meta.region_name
    found[service] = [*where, keys.access_key, keys.token]
from sagemaker.core.common_utils import resolve_value_from_config
from sagemaker.core.config.config_schema import TELEMETRY_OPT_OUT_PATH
from sagemaker.core.helper.session_helper import Session
session = Session()
quiet = resolve_value_from_config(None, TELEMETRY_OPT_OUT_PATH, sagemaker_session=session)
print(json.dumps([found, quiet, session.default_bucket()]))
"""


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, str]:
    """An environment whose every setting leads to the real AWS."""
    home = tmp_path / "home"
    modules = {"TelemetryOptOut": False, "Session": {"DefaultS3Bucket": "real"}}
    sdk = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": modules}}}
    files = {
        ".aws/config": CONFIG,
        ".aws/credentials": "[default]\naws_access_key_id = REAL\naws_secret_access_key = REAL\n",
        ".config/sagemaker/config.yaml": json.dumps(sdk),
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    settings = dict.fromkeys(names_of_botocore() - HARMLESS, "real")
    for service in ("S3", "SAGEMAKER", "STS", "SAGEMAKER_RUNTIME", "CLOUDWATCH_LOGS"):
        settings[f"AWS_ENDPOINT_URL_{service}"] = REAL
    switches = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_USE_FIPS_ENDPOINT")
    return settings | dict.fromkeys(switches, "true") | {"HOME": str(home)}


@pytest.mark.sweep
@pytest.mark.slow
def test_nothing_of_the_user_leads_a_client_to_the_real_aws(tmp_path: Path, hostile: dict):
    outer = {**os.environ, **hostile}
    with serve_emulator(tmp_path / "aws") as endpoint:
        unset = list_conflicting_variables(outer, endpoint.env)
        inner = {k: v for k, v in outer.items() if k not in unset} | endpoint.env
        done = subprocess.run(
            [sys.executable, "-c", ASK],
            cwd=CHECKOUT, env=inner, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, quiet, bucket = json.loads(done.stdout.splitlines()[-1])
    assert {tuple(client) for client in found.values()} == {
        (endpoint.url, "us-east-1", endpoint.env["AWS_ACCESS_KEY_ID"], None)
    }
    assert quiet is True and bucket == "sagemaker-us-east-1-123456789012"
