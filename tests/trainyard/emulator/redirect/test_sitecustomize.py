"""A program's addresses of AWS lead to the emulator; nothing else changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.emulator.client_environment import REDIRECT
from trainyard.emulator.redirect.sitecustomize import redirect_address

pytestmark = pytest.mark.long

HERE = "http://127.0.0.1:1234"
ASK = """
import json, sys
import boto3, botocore.session
given = sys.argv[1]
clients = [boto3.client("sts", region_name="eu-west-1", endpoint_url=given),
           boto3.Session(region_name="eu-west-1").resource("s3", endpoint_url=given).meta.client,
           botocore.session.get_session().create_client("s3", "eu-west-1", endpoint_url=given)]
print(json.dumps([[client.meta.endpoint_url for client in clients], sys.modules["sitecustomize"].__file__]))
"""  # noqa: E501


def ask(given: str, path: list[str], **environment: str) -> tuple[list[str], str]:
    """Return the targets of clients with an address, and the last sitecustomize that ran."""
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, given],
        env=os.environ | keys | environment | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    addresses, last = json.loads(done.stdout)
    return addresses, last


@pytest.mark.parametrize(
    ("given", "there"),
    [("https://sts.eu-west-1.amazonaws.com", HERE), ("http://127.0.0.1:9", "http://127.0.0.1:9")],
)
def test_a_clients_address_of_aws_leads_to_the_emulator_and_one_of_ones_own_there(given, there):
    assert ask(given, [REDIRECT], AWS_ENDPOINT_URL=HERE)[0] == [there] * 3


def test_the_sitecustomize_that_ours_hides_is_run(tmp_path: Path):
    mine = tmp_path / "sitecustomize.py"
    mine.write_text("import os; os.environ['AWS_ENDPOINT_URL'] = 'http://127.0.0.1:77'")
    addresses, last = ask("https://s3.amazonaws.com", [REDIRECT, str(tmp_path)])
    assert (addresses, last) == (["http://127.0.0.1:77"] * 3, str(mine))


NAME = """
import boto3, botocore.session, os
sessions = [boto3.Session(profile_name="dev"), boto3.Session()]
sessions[1]._session.set_config_variable("profile", "prod")
os.environ["AWS_PROFILE"] = "from-the-code"
sessions.append(boto3.Session())
sessions.append(boto3.Session(botocore_session=botocore.session.Session(profile="other")))
for session in sessions:
    client = session.client("sts", region_name="eu-west-1")
    print(client.meta.endpoint_url, session.get_credentials().access_key)
"""


def test_a_profile_that_the_code_names_leads_to_the_emulator(tmp_path: Path):
    empty = tmp_path / "empty"
    empty.touch()
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": HERE}
    files = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), str(empty))
    done = subprocess.run(
        [sys.executable, "-c", NAME],
        env=os.environ | keys | files | {"PYTHONPATH": REDIRECT},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"{HERE} k"] * 4, done.stderr


@pytest.mark.parametrize(
    "address",
    ["https://sts.us-west-2.amazonaws.com", "https://s3.cn-north-1.amazonaws.com.cn/",
     "https://s3.dualstack.eu-west-1.amazonaws.com:443", "https://sagemaker.us-east-1.api.aws"],
)  # fmt: skip
def test_addresses_of_aws(address: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert redirect_address(address) == address
    monkeypatch.setenv("AWS_ENDPOINT_URL", HERE)
    assert redirect_address(address) == HERE


@pytest.mark.parametrize("address", [None, "", "https://amazonaws.com.evil.example", HERE])
def test_other_addresses_stay(address: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert redirect_address(address) == address
