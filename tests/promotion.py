"""Three accounts with a registered package in the first: what tests and benchmark promote."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import yaml

from pipelines.promote import Environments, read_both_environments
from pipelines.registry.shared_access import build_policies
from tests.registered import checkout_in, register
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.iam import access_keys
from trainyard.emulator.iam.authority import Mode
from trainyard.emulator.server import Endpoint, serve_emulator

DEV, STAGING, PROD = "123456789012", "222222222222", "333333333333"
GROUP = "trainyard-laptop"
PACKAGE = f"arn:aws:sagemaker:us-east-1:{DEV}:model-package/{GROUP}/1"
CHECKOUT = Path(__file__).parents[1]
ENTRY = "arn:aws:iam::{}:role/OrganizationAccountAccessRole"
BUCKETS = {DEV: "trainyard-laptop", STAGING: "of-staging", PROD: "of-prod"}
NAMES = {DEV: "dev", STAGING: "staging", PROD: "prod"}


def recipe_in(folder: Path) -> Path:
    """Write the recipe of the package, with three environments, and return its path."""
    path = folder / "deploy.yaml"
    before = {STAGING: DEV, PROD: STAGING}
    environments: dict[str, Any] = {}
    for number, name in NAMES.items():
        role, bucket = f"arn:aws:iam::{number}:role/{access_keys.NAME}", BUCKETS[number]
        environments[name] = {"aws": {"account": number, "role": role, "bucket": bucket}}
        if number in before:
            reader = f"arn:aws:iam::{before[number]}:role/reader"
            environments[name]["promotion"] = {"source": NAMES[before[number]], "reader": reader}
    environments["prod"]["deploy"] = {"endpoint": "live"}
    whole = yaml.safe_load((CHECKOUT / "recipes/laptop.yaml").read_text())
    whole |= {"gate": {"max_bits_per_byte": 8.5}, "environments": environments}
    path.write_text(yaml.safe_dump(whole))
    return path


@dataclass
class Accounts:
    """The emulator, with clients of each account's administrator."""

    endpoint: Endpoint
    recipe: Path
    _sessions: dict[str, boto3.Session] = field(default_factory=dict)

    def session(self, number: str, role: str = "") -> boto3.Session:
        """Return a session of an account's administrator, or of a role of it."""
        if number == DEV and not role:
            env = self.endpoint.env
            return boto3.Session(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"])
        arn = f"arn:aws:iam::{number}:role/{role}" if role else ENTRY.format(number)
        if arn not in self._sessions:
            by = self.session(number if role else DEV)
            given = self.open_client(by, "sts").assume_role(RoleArn=arn, RoleSessionName="test")
            keys = given["Credentials"]
            self._sessions[arn] = boto3.Session(
                keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"]
            )
        return self._sessions[arn]

    def open_client(self, session: boto3.Session, service: str) -> Any:
        return session.client(service, region_name="us-east-1", endpoint_url=self.endpoint.url)

    def client(self, number: str, service: str) -> Any:
        return self.open_client(self.session(number), service)

    @contextmanager
    def acting(self, number: str, role: str = "") -> Iterator[None]:
        """Act in the block as an account's administrator, or as a role of it."""
        keys = self.session(number, role).get_credentials()
        env = dict(self.endpoint.env)
        env |= {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}
        env |= {"AWS_SESSION_TOKEN": keys.token} if keys.token else {}
        boto3.DEFAULT_SESSION = None  # it remembers another's credentials
        with apply_environment(env):
            yield
        boto3.DEFAULT_SESSION = None

    def sides(self, number: str) -> Environments:
        return read_both_environments(self.recipe, [], NAMES[number])

    def share(self, number: str) -> None:
        """Create what the promotion to an account needs, as ``--policies`` prints it."""
        sides, promoter = self.sides(number), f"arn:aws:iam::{number}:role/promoter"
        found, source = build_policies(sides.route, promoter), sides.route.source
        iam = self.client(source, "iam")
        reader = {"RoleName": "reader"}
        trust = found[f"{sides.route.reader}: trust"]
        iam.create_role(**reader, AssumeRolePolicyDocument=json.dumps(trust))
        own = found[f"{sides.route.reader}: policy"]
        iam.put_role_policy(**reader, PolicyName="promotion", PolicyDocument=json.dumps(own))
        self.client(source, "s3").put_bucket_policy(
            Bucket=sides.route.bucket, Policy=json.dumps(found[f"bucket {sides.route.bucket}"])
        )
        mine = self.client(number, "iam")
        document = found[f"{promoter}: trust"]
        mine.create_role(RoleName="promoter", AssumeRolePolicyDocument=json.dumps(document))
        mine.put_role_policy(
            RoleName="promoter",
            PolicyName="promotion",
            PolicyDocument=json.dumps(found[f"{promoter}: policy"]),
        )


def registered_state(folder: Path) -> Path:
    """Run the small pipeline on an emulator, and return its state with the package in it."""
    state = folder / "registered"
    with serve_emulator(state) as endpoint:
        register(endpoint, state, checkout_in(folder / "checkout"))
    return state


@contextmanager
def three_accounts(folder: Path, state: Path, iam: Mode = "derived") -> Iterator[Accounts]:
    """Serve a copy of the registered state, with two more accounts and a bucket in each."""
    shutil.copytree(state, folder / "aws", symlinks=True)
    with serve_emulator(folder / "aws", iam=iam) as endpoint:
        accounts = Accounts(endpoint, recipe_in(folder))
        for number in (STAGING, PROD):
            accounts.client(number, "s3").create_bucket(Bucket=BUCKETS[number])
        yield accounts
