"""Environment variables that direct an ordinary AWS client to the emulator instead of AWS."""

import contextlib
import os
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainyard.common import atomic_file
from trainyard.common.atomic_file import Draft
from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers.install_layer import build_pip_settings
from trainyard.emulator.containers.isolation import Isolation, choose_isolation
from trainyard.emulator.containers.proxy import Route, find_network_tool
from trainyard.emulator.iam.access_keys import Keys, Loan
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.request_scope import REGION
from trainyard.emulator.s3 import object_folder

STUDIO = f"542918446943.dkr.ecr.{REGION}.amazonaws.com/sagemaker-distribution-prod:latest-cpu"
"""Studio's own image, under the name that Studio gives the SDK. A @step without an image runs in
it, whatever its Python version is.
"""

REDIRECT = str(Path(__file__).parent / "redirect")
"""Folder for the start of PYTHONPATH. It directs clients with an AWS address to
AWS_ENDPOINT_URL.
"""

_CONFIG = str(Path(__file__).with_name("sagemaker-sdk.yaml"))
SDK = {
    "SAGEMAKER_VALIDATE_ROLE": "false",  # its check needs iam:SimulatePrincipalPolicy
    "SAGEMAKER_USER_CONFIG_OVERRIDE": _CONFIG,
    "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": _CONFIG,
}
"""Variables that the SageMaker SDK needs to work with the emulator, in a client or a job."""

_HARMLESS = re.compile(
    "AWS_(CA_BUNDLE|PAGER|DEFAULT_OUTPUT|CLI_.*|MAX_ATTEMPTS|RETRY_MODE|DEFAULTS_MODE|EXECUTION_ENV"
    "|SDK_UA_APP_ID|REQUEST_MIN_COMPRESSION_SIZE_BYTES|DISABLE_REQUEST_COMPRESSION"
    "|(REQUEST_CHECKSUM_CALCULATION|RESPONSE_CHECKSUM_VALIDATION)|METADATA_SERVICE_.*)"
)
"""Settings that change neither a client's destination nor its identity. AWS adds new settings every
year, so everything that is not known to be harmless counts as foreign.
"""


ADDRESS = "address"
"""File of a state directory with the URL at which a running emulator serves it."""
_START_S = 10  # maximum seconds until an emulator that has locked its state writes ADDRESS


@contextlib.contextmanager
def announce_endpoint(url: str, state: Path) -> Iterator[None]:
    """Write the endpoint's URL into the state directory, which also has the access key; remove it
    when the ``with`` block ends.
    """
    draft = Draft(state / ADDRESS, mode=0o600)
    draft.file.write(url.encode())
    draft.finish()
    try:
        yield
    finally:
        (state / ADDRESS).unlink(missing_ok=True)


def find_running_environment(state: Path) -> dict[str, str] | None:
    """Return the variables for clients of the emulator that another process runs on ``state``.
    Return None if there is none.

    Raises:
        EmulatorError: an emulator has locked the directory, but does not write its URL in time.
    """
    for wait in (0.0, *[0.1] * (10 * _START_S)):
        time.sleep(wait)
        if not object_folder.is_locked(state / "s3"):
            return None
        # An emulator locks the directory shortly before it writes its URL.
        with contextlib.suppress(FileNotFoundError):
            url = (state / ADDRESS).read_text()
            return prepare_environment(url, state.resolve(), Keys(state).own_pair)
    raise EmulatorError(
        f"the emulator that has locked {state} has not written its URL to {state / ADDRESS} within "
        f"{_START_S} s; stop it and start it again"
    )


def prepare_environment(url: str, state: Path, keys: tuple[str, str]) -> dict[str, str]:
    """Return the variables for a client process, and write the files that they name into ``state``.

    ``keys`` are the access key and its secret.
    """
    values = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": keys[0],
        "AWS_SECRET_ACCESS_KEY": keys[1],
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        # The user's own configuration must not have an effect: ~/.aws/config may contain another
        # endpoint of a service, or say that endpoints in the environment are ignored, and a call
        # would go to the real AWS.
        "AWS_CONFIG_FILE": _write_empty(state / "aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": _write_empty(state / "aws-credentials"),
        "SAGEMAKER_INTERNAL_IMAGE_URI": STUDIO,
        **SDK,
    }
    values["PYTHONPATH"] = os.pathsep.join(filter(None, [REDIRECT, os.environ.get("PYTHONPATH")]))
    if urllib.request.getproxies():  # a proxy cannot reach this machine's loopback
        for name in ("NO_PROXY", "no_proxy"):
            values[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))
    return values


def list_conflicting_variables(
    outer: Mapping[str, str], replacements: Mapping[str, str]
) -> list[str]:
    """Return the names of the variables in ``outer`` that must not reach a client together with
    ``replacements``: real credentials, and settings that lead elsewhere (a profile, a session
    token, an endpoint for one service).
    """
    names = {name for name in outer if name.startswith("AWS_") or name == "BOTO_CONFIG"}
    return sorted(name for name in names - replacements.keys() if not _HARMLESS.fullmatch(name))


@contextlib.contextmanager
def apply_environment(replacements: Mapping[str, str]) -> Iterator[None]:
    """Set ``replacements``, and unset the variables that lead to AWS, in this process's environment
    inside the ``with`` block.
    """
    names = {*replacements, *list_conflicting_variables(os.environ, replacements)}
    before = {name: os.environ[name] for name in names if name in os.environ}
    try:
        for name in before:
            del os.environ[name]
        os.environ.update(replacements)
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def _write_empty(path: Path) -> str:
    atomic_file.write_file(path, b"")
    return str(path)


# A container's access to the emulator, as on AWS: credentials of its role, and a network route.


class Access:
    """The endpoint and credentials of one container, or of all nodes of one job."""

    def __init__(self, aws: Aws, loan: Loan) -> None:
        self._aws, self._loan = aws, loan
        self.route = Route(
            aws.url,
            aws.serve_socket,
            find_network_tool() if aws.internet and choose_isolation().loopback else None,
        )

    def build_environment(self, isolation: Isolation) -> dict[str, str]:
        """Return the variables that direct an AWS client to the emulator, with the role's
        credentials.
        """
        # A container in an engine gets the keys themselves: AWS clients accept no credentials over
        # HTTP from an address in its network, and the special address for credentials does not
        # exist there.
        if isolation.url:
            return {
                "AWS_ENDPOINT_URL": isolation.url,
                "AWS_ACCESS_KEY_ID": self._loan.access_key,
                "AWS_SECRET_ACCESS_KEY": self._loan.secret,
                "AWS_SESSION_TOKEN": self._loan.token,
            }
        path, url = self._loan.path, self._aws.url
        uri = {"RELATIVE_URI": path} if isolation.loopback else {"FULL_URI": f"{url}{path}"}
        credentials = {f"AWS_CONTAINER_CREDENTIALS_{name}": value for name, value in uri.items()}
        variables = {"AWS_ENDPOINT_URL": url, "PYTHONPATH": REDIRECT}
        pip = build_pip_settings() if self._aws.internet else {}
        return variables | credentials | SDK | pip


@contextlib.contextmanager
def grant_access(aws: Aws, role: str, is_isolated: bool) -> Iterator[Access | None]:
    """Yield the access of a container with the role ``role``. Revoke its credentials at the end.

    ``is_isolated``: EnableNetworkIsolation is set, so the container has no access and None is
    yielded.
    """
    if is_isolated:
        yield None
        return
    loan = aws.keys.create_loan(role)
    try:
        yield Access(aws, loan)
    finally:
        aws.keys.revoke_loan(loan)
