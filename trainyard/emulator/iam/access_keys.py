"""The valid access keys and their secrets.

There are the state directory's own key; keys of sessions (AssumeRole), which expire with the
session; keys that moto's IAM creates for users; and keys lent to a job, which expire with the job.
"""

import hashlib
import json
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.common.atomic_file import Draft
from trainyard.common.errors import EmulatorError
from trainyard.emulator.request_scope import ACCOUNT, read_account
from trainyard.permissions.policy_documents import Policy

FILE = "credentials.json"
CREDENTIALS_PATH = "/v2/credentials/"
"""Start of a container's AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, as on ECS."""
SESSION = "SageMaker"
"""Name of the session in which SageMaker assumes a job's role."""
_CREDENTIAL_TAG = re.compile(r"<(AccessKeyId|SecretAccessKey)>([^<]+)</")
ROLE = re.compile(r"arn:[\w-]+:iam::\d{12}:role/(?:[^/]+/)*(?P<name>[\w+=,.@-]+)")
REFRESH_SECONDS = 3600  # seconds after which a client fetches a job's credentials again


@dataclass(frozen=True, slots=True)
class Loan:
    """Temporary credentials of a role, which are lent to a container while it runs."""

    role: str
    """ARN of the role as the job's request has it."""
    access_key: str
    secret: str
    token: str
    path: str
    """Path of the endpoint at which the container fetches its credentials. It is random, so that no
    other process can know it.
    """

    account: str
    """Account of the job."""

    @property
    def identity(self) -> dict[str, str]:
        """The response of GetCallerIdentity: the job is the session ``SageMaker`` of its role."""
        return _build_identity(self.role, self.account)

    def to_document(self) -> dict[str, str]:
        """Return the credentials as the JSON object of ECS, which AWS's clients read."""
        until = time.gmtime(time.time() + REFRESH_SECONDS)
        return {
            "RoleArn": self.role,
            "AccessKeyId": self.access_key,
            "SecretAccessKey": self.secret,
            "Token": self.token,
            "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", until),
        }


@dataclass(frozen=True, slots=True)
class Session:
    """A session of a role, as AssumeRole creates it."""

    role: str
    """The role's ARN."""
    name: str
    account: str
    user_id: str
    until: float
    """Time at which its credentials expire, in seconds since the epoch."""
    policies: tuple[Policy, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    transitive: frozenset[str] = frozenset()
    """Keys, in lower case, of the tags that are passed on to sessions that this session creates."""

    @property
    def arn(self) -> str:
        return (
            f"arn:aws:sts::{self.account}:assumed-role/{self.role.rpartition('/')[2]}/{self.name}"
        )


class Keys:
    """The valid access keys. ``own_pair`` is a random access key and its secret, stored in a file
    that only its owner can read.
    """

    def __init__(self, state: Path) -> None:
        path = state / FILE
        self.own_pair: tuple[str, str] = (
            _read_key_file(path) if path.exists() else _create_key_file(path)
        )
        self._secrets = dict([self.own_pair])
        self._tokens: dict[str, str] = {}
        self._loans: dict[str, Loan] = {}
        self._accounts: dict[str, str] = {}
        self._administrators: dict[str, Loan] = {}
        self._ended_keys: set[str] = set()
        self._sessions: dict[str, Session] = {}
        self._users: set[str] = set()

    def find_secret(self, access_key: str) -> str | None:
        """Return the secret of ``access_key``. Return None if the key is unknown."""
        return self._secrets.get(access_key)

    def find_token(self, access_key: str) -> str:
        """Return the session token of temporary credentials. Return an empty string for a permanent
        key.
        """
        return self._tokens.get(access_key, "")

    def resolve_account(self, access_key: str) -> str:
        """Return the number of the account to which a valid key belongs."""
        return self._accounts.get(access_key, ACCOUNT)

    def find_administrator_key(self) -> tuple[str, str, str | None]:
        """Return the access key, secret and session token of the current account's administrator.
        The token is None for a permanent key.
        """
        if read_account() == ACCOUNT:
            return *self.own_pair, None
        if read_account() not in self._administrators:
            self._administrators[read_account()] = self.create_loan(make_administrator_arn())
        loan = self._administrators[read_account()]
        return loan.access_key, loan.secret, loan.token

    def explain_expiry(self, access_key: str) -> str:
        """Return why the key is no longer valid. Return an empty string if it is valid or
        unknown.
        """
        if access_key in self._ended_keys:
            return "its job ended"
        session = self._sessions.get(access_key)
        return "its DurationSeconds have passed" if session and time.time() > session.until else ""

    def create_session_key(self, session: Session) -> tuple[str, str, str]:
        """Create the credentials of the session: access key, secret and session token. They are
        valid until its end.
        """
        key = f"ASIA{secrets.token_hex(8).upper()}"
        self._secrets[key] = secrets.token_urlsafe(30)
        self._tokens[key] = secrets.token_urlsafe(256)
        self._accounts[key] = session.account
        self._sessions[key] = session
        return key, self._secrets[key], self._tokens[key]

    def find_session(self, access_key: str) -> Session | None:
        """Return the session to which the key belongs. Return None if it belongs to none."""
        return self._sessions.get(access_key)

    def is_user_key(self, access_key: str) -> bool:
        """Return whether the key was created for a user by CreateAccessKey. IAM may have
        deactivated it since.
        """
        return access_key in self._users

    def create_loan(self, role: str) -> Loan:
        """Create credentials for a job with that role. They are valid until the loan is revoked."""
        loan = Loan(
            role=role,
            access_key=f"ASIA{secrets.token_hex(8).upper()}",
            secret=secrets.token_urlsafe(30),
            token=secrets.token_urlsafe(256),
            path=f"{CREDENTIALS_PATH}{secrets.token_urlsafe(24)}",
            account=read_account(),
        )
        self._secrets[loan.access_key] = loan.secret
        self._tokens[loan.access_key] = loan.token
        self._accounts[loan.access_key] = loan.account
        self._loans |= {loan.access_key: loan, loan.path: loan}
        return loan

    def revoke_loan(self, loan: Loan) -> None:
        """Revoke the loan's key: requests signed with it are refused as expired from now on."""
        self._ended_keys.add(loan.access_key)
        # The secret is kept, so that a signature with it is refused as expired and not as unknown.
        del self._loans[loan.access_key], self._loans[loan.path]

    def find_loan(self, name: str) -> Loan | None:
        """Return the loan with that access key or path. Return None if there is none."""
        return self._loans.get(name)

    def find_identity(self, access_key: str) -> dict[str, str] | None:
        """Return the response of GetCallerIdentity for the state directory's own key and for
        keys of jobs and sessions. Return None for a user's key.
        """
        # The owner of this key is a session of a role, like users in Studio.
        if access_key == self.own_pair[0]:
            return _build_identity(make_administrator_arn(), ACCOUNT)
        if session := self._sessions.get(access_key):
            return {"Arn": session.arn, "UserId": session.user_id, "Account": session.account}
        loan = self._loans.get(access_key)
        return loan.identity if loan else None

    def store_user_key(self, answer: bytes) -> None:
        """Store the key in ``answer``, which is moto's response to CreateAccessKey."""
        fields = dict(_CREDENTIAL_TAG.findall(answer.decode("latin-1")))
        if {"AccessKeyId", "SecretAccessKey"} <= fields.keys():
            self._secrets[fields["AccessKeyId"]] = fields["SecretAccessKey"]
            self._accounts[fields["AccessKeyId"]] = read_account()
            self._users.add(fields["AccessKeyId"])


def make_role_id(name: str) -> str:
    """Return a stable id for a role that IAM does not know."""
    return f"AROA{hashlib.sha256(name.encode()).hexdigest()[:17].upper()}"


def _build_identity(role: str, account_id: str) -> dict[str, str]:
    """Return GetCallerIdentity's response for the session ``SageMaker`` of a role. The account is
    ``account_id`` even if the role's ARN has another one: a pipeline may name any role.
    """
    match = ROLE.fullmatch(role)
    name = match["name"] if match else role.rpartition("/")[2]
    return {
        "Arn": f"arn:aws:sts::{account_id}:assumed-role/{name}/{SESSION}",
        "UserId": f"{make_role_id(name)}:{SESSION}",
        "Account": account_id,
    }


def _create_key_file(path: Path) -> tuple[str, str]:
    """Create ``path`` with a key and a secret of 20 and 40 characters, which are AWS's lengths."""
    pair = f"TRAINYARD{secrets.token_hex(6).upper()[:11]}", secrets.token_urlsafe(30)
    with Draft(path, mode=0o600) as file:
        file.write(json.dumps({"AccessKeyId": pair[0], "SecretAccessKey": pair[1]}).encode())
    return pair


def _read_key_file(path: Path) -> tuple[str, str]:
    """Read the key and its secret. Raises EmulatorError if the file is damaged, or if others can
    read it.
    """
    if path.stat().st_mode & 0o077:
        raise EmulatorError(
            f"{path} can be read by others (mode {path.stat().st_mode & 0o777:o}), and contains "
            "the secret with which code can be run here: remove it; a new one will be created"
        )
    try:
        document = json.loads(path.read_bytes())
        pair = document["AccessKeyId"], document["SecretAccessKey"]
        if not all(isinstance(value, str) and value for value in pair):
            raise ValueError("AccessKeyId and SecretAccessKey must be strings")
    except (ValueError, KeyError, TypeError) as damage:
        raise EmulatorError(
            f"{path} cannot be read ({type(damage).__name__}): expected a JSON object with "
            "AccessKeyId and SecretAccessKey. Remove it; a new one will be created, and "
            "clients then need the new values"
        ) from None
    return pair


# The roles of an account's administrator. The owner of the emulator's own key is a session of the
# first, NAME, as in Studio, so that ``get_execution_role()`` returns a role. The second, ENTRY,
# gives access to another account. Both are added to moto's IAM at the first request that names one
# of them, or lists all roles.

NAME = "AmazonSageMaker-ExecutionRole"
ENTRY = "OrganizationAccountAccessRole"
"""The role that AWS Organizations creates in each account of an organization, and that the
organization's own account may assume. Here, assuming it creates the account.
"""
_ENTRY = re.compile(rf"arn:[\w-]+:iam::(\d{{12}}):role/{ENTRY}")
_ROLE_REQUEST = re.compile(rf"({NAME}|{ENTRY})(&|$)|Action=(ListRoles|GetAccountAuth)".encode())


def _build_trust_policy(**principal: str) -> dict[str, Any]:
    allow = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [allow]}


TRUST = _build_trust_policy(Service="sagemaker.amazonaws.com")
"""Trust policy of NAME: only SageMaker may assume it, as with any role for its jobs."""
ENTRY_TRUST = _build_trust_policy(AWS=f"arn:aws:iam::{ACCOUNT}:root")


def make_administrator_arn() -> str:
    """Return the ARN of the administrator's role in the current account."""
    return f"arn:aws:iam::{read_account()}:role/{NAME}"


def is_administrator_role(role: str) -> bool:
    """Return whether the ARN ``role`` is that of the role NAME, or of ENTRY of another account."""
    return role.rpartition("/")[2] == NAME or bool(find_entry_role_account(role))


def find_entry_role_account(role: str) -> str:
    """Return the number of the account whose entry role (ENTRY) has the ARN ``role``. Return an
    empty string for any other role, and for the own account.
    """
    match = _ENTRY.fullmatch(role)
    return match[1] if match and match[1] != ACCOUNT else ""


def needs_administrator_roles(body: bytes) -> bool:
    """Return whether the response to a request with this body depends on the role NAME or ENTRY."""
    return bool(_ROLE_REQUEST.search(body))


def add_administrator_roles() -> None:
    """Add the administrator's roles to the account's IAM if they are missing."""
    from moto.iam.models import iam_backends  # takes 0.3 s: see account_policies

    backend = iam_backends[read_account()]["aws"]
    existing_names = {role.name for role in backend.roles.values()}
    roles = {NAME: (TRUST, "Identity of the emulator's own key")}
    if read_account() != ACCOUNT:
        roles[ENTRY] = ENTRY_TRUST, f"Administrator, for users of account {ACCOUNT}"
    for name in roles.keys() - existing_names:
        trust, description = roles[name]
        backend.create_role(name, json.dumps(trust), "/", None, description, [], "3600")
