"""Sessions: each member of AssumeRole limits them, or is refused by its name."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import cloud
from tests.trainyard.emulator.iam.test_enforcement import READ, Account
from tests.trainyard.emulator.iam.test_enforcement import document as policy
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.iam.authority import Mode

pytestmark = pytest.mark.long

OWN = "arn:aws:iam::123456789012"
ENTRY = "arn:aws:iam::222222222222:role/OrganizationAccountAccessRole"
EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
TRUST = {"Effect": "Allow", "Principal": {"AWS": f"{OWN}:root"}, "Action": "sts:AssumeRole"}
TAGGING = TRUST | {"Action": ["sts:AssumeRole", "sts:TagSession"]}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with cloud(tmp_path_factory.mktemp("aws")) as aws:
        found = Account(aws)
        found.sts = make_client(aws.endpoint, "sts")
        yield found


@pytest.fixture(params=["derived", "enforce"])
def mode(account: Account, request: pytest.FixtureRequest) -> Iterator[Mode]:
    account.authority.mode = request.param
    yield request.param
    account.authority.mode = "derived"


def session(account: Account, role: str, service: str, by: Any = None, **members: Any) -> Any:
    """Return a client with the keys of a session of the role; ``by``: STS of who assumes it."""
    keys = (by or account.sts).assume_role(RoleArn=role, RoleSessionName="me", **members)
    return account.client(service, keys["Credentials"])


def error(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call()
    found = caught.value.response["Error"]
    return found["Code"], found["Message"]


LIMITS = [
    {"Policy": policy(READ)},
    {"PolicyArns": [{"arn": f"{OWN}:policy/reading"}]},
    {"PolicyArns": [{"arn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}]},
]


EXECUTION = "AmazonSageMaker-ExecutionRole"


@pytest.mark.parametrize(
    ("role", "limit", "mode"),
    [("wide", LIMITS[0], "derived"), ("wide", LIMITS[1], "enforce"), ("wide", LIMITS[2], "derived"),
     (EXECUTION, LIMITS[0], "derived"), (EXECUTION, LIMITS[1], "enforce")],
    indirect=["mode"],
)  # fmt: skip
def test_session_policies_bind_a_session_of_any_role(account, role: str, limit: dict, mode: Mode):
    account.authority.mode = "derived"
    names = [p["PolicyName"] for p in account.iam.list_policies(Scope="Local")["Policies"]]
    if "reading" not in names:
        account.iam.create_policy(PolicyName="reading", PolicyDocument=policy(READ))
    if role == "wide":
        account.role("wide", EVERYTHING, policy="own", trust=TRUST)
    else:
        account.iam.update_assume_role_policy(RoleName=role, PolicyDocument=policy(TRUST))
    account.authority.mode = mode
    account.aws.put("a", "x")
    s3 = session(account, f"{OWN}:role/{role}", "s3", **limit)
    assert s3.get_object(Bucket="bkt", Key="a")["Body"].read() == b"x"
    code, message = error(lambda: s3.put_object(Bucket="bkt", Key="a", Body=b"y"))
    assert code == "AccessDenied" and "no session policy allows the s3:PutObject" in message


def test_session_policies_bind_the_administrator_of_another_account(account: Account, mode: Mode):
    plain = session(account, ENTRY, "s3")
    bucket = f"of-another-{mode}"
    plain.create_bucket(Bucket=bucket)
    put = {"Bucket": bucket, "Key": "a", "Body": b""}
    code, message = error(lambda: session(account, ENTRY, "s3", **LIMITS[2]).put_object(**put))
    assert code == "AccessDenied" and "no session policy allows the s3:PutObject" in message
    plain.put_object(**put)


PROVIDED = {"ProviderArn": f"{OWN}:oidc-provider/x", "ContextAssertion": "abcd"}
A, B = ({"Key": name, "Value": "1"} for name in "aA")
WRONG = [
    ({"DurationSeconds": 7200}, "ValidationError", "1 hour session limit for roles assumed by ro"),
    ({"Policy": "{}"}, "MalformedPolicyDocument", "has no Statement"),
    ({"Policy": "x" * 2049}, "ValidationError", "at most 2048 characters"),
    ({"PolicyArns": [{"arn": f"{OWN}:policy/none"}]}, "ValidationError", "policy/none is neither"),
    ({"PolicyArns": [{"arn": f"{OWN}:policy/{n:02}"} for n in range(11)]}, "ValidationError",
     "most 10"),
    ({"RoleSessionName": "a b"}, "ValidationError", "RoleSessionName 'a b'"),
    ({"RoleArn": "arn:aws:iam::1:role/short"}, "ValidationError", "role/short is invalid"),
    ({"Tags": [A, B]}, "InvalidParameterValue", "Duplicate tag keys found."),
    ({"Tags": [A], "TransitiveTagKeys": ["b"]}, "InvalidParameterValue",
     "transitive tag key must be included"),
    ({"SourceIdentity": "ann"}, "InvalidAction", "AssumeRole: SourceIdentity would have no effect"),
    ({"SerialNumber": "GAHT12345678"}, "InvalidAction", "SerialNumber would have no effect"),
    ({"TokenCode": "123456"}, "InvalidAction", "TokenCode would have no effect"),
    ({"ProvidedContexts": [PROVIDED]}, "InvalidAction", "ProvidedContexts would have no effect"),
]  # fmt: skip


@pytest.mark.parametrize(("members", "code", "said"), WRONG)
def test_what_is_wrong_or_has_no_effect_is_refused(account, members: dict, code: str, said: str):
    request = {"RoleArn": ENTRY.replace("2", "3"), "RoleSessionName": "me"} | members
    found, message = error(lambda: account.sts.assume_role(**request))
    assert found == code and said in message
    assert not (account.aws.state / "accounts/333333333333").exists(), "nothing is opened for it"


def test_a_session_lasts_no_longer_than_its_role_allows(account: Account) -> None:
    account.role("long", READ, policy="own", MaxSessionDuration=7200)
    account.role("short", READ, policy="own")
    account.iam.create_user(UserName="ann")
    key = account.iam.create_access_key(UserName="ann")["AccessKey"]
    sts = account.client("sts", key)

    def ask(role: str, seconds: int, by: Any = sts) -> Any:
        arn = f"{OWN}:role/{role}"
        return by.assume_role(RoleArn=arn, RoleSessionName="me", DurationSeconds=seconds)

    end = ask("long", 7200)["Credentials"]["Expiration"].timestamp()
    assert end == pytest.approx(time.time() + 7200, abs=60)
    for role, seconds in (("long", 7201), ("short", 3601)):
        code, said = error(lambda role=role, seconds=seconds: ask(role, seconds))
        assert code == "ValidationError"
        assert "exceeds the MaxSessionDuration set for this role" in said
    chained = session(account, f"{OWN}:role/long", "sts", by=sts, DurationSeconds=7200)
    assert "role chaining" in error(lambda: ask("long", 3601, chained))[1]
    assert ask("long", 3600, chained)


def test_a_sessions_keys_end_with_it(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.role("short", READ, policy="own")
    sts = session(account, f"{OWN}:role/short", "sts", DurationSeconds=900)
    arn = sts.get_caller_identity()["Arn"]
    assert arn == "arn:aws:sts::123456789012:assumed-role/short/me"
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 901)
    monkeypatch.setattr("trainyard.emulator.request_signatures.SKEW", 2000)
    code, said = error(sts.get_caller_identity)
    assert code == "ExpiredToken" and "its DurationSeconds have passed" in said


@pytest.mark.parametrize("mode", ["enforce"], indirect=True)
def test_an_external_id_and_session_tags_are_what_policies_ask_for(account: Account, mode: Mode):
    account.authority.mode = "derived"
    outside = TRUST | {"Condition": {"StringEquals": {"sts:ExternalId": "secret"}}}
    role = account.role("outside", READ, policy="own", trust=outside)
    own = READ | {"Resource": "arn:aws:s3:::bkt/${aws:PrincipalTag/team}/*"}
    tagging = EVERYTHING | {"Action": "sts:*"}
    tagged = account.role("tagged", own, tagging, policy="own", trust=TRUST)
    for key in ("red/a", "blue/a"):
        account.aws.put(key, "x")
    account.authority.mode = mode
    for given in ({}, {"ExternalId": "other"}):
        code, said = error(lambda given=given: session(account, role, "s3", **given))
        assert code == "AccessDenied"
        assert "because no role trust policy allows the sts:AssumeRole" in said
    assert session(account, role, "s3", ExternalId="secret")
    tags = {"Tags": [{"Key": "Team", "Value": "red"}]}
    code, said = error(lambda: session(account, tagged, "s3", **tags))
    assert code == "AccessDenied" and "sts:TagSession" in said
    account.iam.update_assume_role_policy(RoleName="tagged", PolicyDocument=policy(TAGGING))
    s3 = session(account, tagged, "s3", **tags)
    assert s3.get_object(Bucket="bkt", Key="red/a")
    assert error(lambda: s3.get_object(Bucket="bkt", Key="blue/a"))[0] == "AccessDenied"
    first = session(account, tagged, "sts", **tags, TransitiveTagKeys=["team"])
    s3 = session(account, tagged, "s3", by=first)
    assert s3.get_object(Bucket="bkt", Key="red/a")
    other = {"Tags": [{"Key": "team", "Value": "x"}]}
    code, said = error(lambda: session(account, tagged, "s3", by=first, **other))
    assert code == "InvalidParameterValue" and "was set as transitive" in said


def test_a_role_that_is_not_there_is_not_assumed(account: Account, mode: Mode) -> None:
    ask = {"RoleArn": f"{OWN}:role/nobodys", "RoleSessionName": "me"}
    if mode == "enforce":
        assert error(lambda: account.sts.assume_role(**ask))[0] == "AccessDenied"
    else:  # a placeholder, as in most examples
        assert account.sts.assume_role(**ask)


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("get_session_token", {}),
        ("get_federation_token", {"Name": "ann"}),
        ("get_access_key_info", {"AccessKeyId": "AKIAIOSFODNN7EXAMPLE"}),
        ("decode_authorization_message", {"EncodedMessage": "x"}),
    ],
)
def test_credentials_that_would_not_be_true_are_refused(account, operation: str, members: dict):
    code, said = error(lambda: getattr(account.sts, operation)(**members))
    assert code == "InvalidAction" and "here only AssumeRole creates credentials" in said


def send_signed_request(account: Account, form: dict[str, str]) -> requests.Response:
    """Send a request of the query protocol in the address."""
    request = AWSRequest("GET", f"{account.aws.endpoint.url}/?{urlencode(form)}")
    env = account.aws.endpoint.env
    keys = boto3.Session(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]).get_credentials()
    SigV4Auth(keys, "sts", "us-east-1").add_auth(request)
    return requests.get(request.url, headers=dict(request.headers), timeout=30)


def test_a_request_in_the_address_is_held_to_the_same(account: Account, mode: Mode) -> None:
    form = {"Action": "AssumeRole", "Version": "2011-06-15", "RoleSessionName": "me"}
    form["RoleArn"] = f"{OWN}:role/nobodys"
    if mode == "enforce":
        assert send_signed_request(account, form).status_code == 403
        return
    assert "AccessKeyId" in send_signed_request(account, form).text
    answer = send_signed_request(account, form | {"DurationSeconds": "7200"})
    assert answer.status_code == 400 and "role chaining" in answer.text
    for provider in ("WithWebIdentity", "WithSAML"):  # no token of theirs is taken unverified
        unverified = {"Action": f"AssumeRole{provider}", "WebIdentityToken": "made up"}
        answer = send_signed_request(account, form | unverified)
        assert answer.status_code == 400 and "does not implement AssumeRole" in answer.text


def test_a_users_key_ends_where_iam_says_so(account: Account) -> None:
    """A key that nobody has any more must not be taken for the administrator's."""
    account.iam.create_user(UserName="bob")
    key = account.iam.create_access_key(UserName="bob")["AccessKey"]
    s3 = account.client("s3", key)
    named = {"UserName": "bob", "AccessKeyId": key["AccessKeyId"]}
    assert s3.list_buckets()
    account.iam.update_access_key(**named, Status="Inactive")
    assert error(s3.list_buckets)[0] == "InvalidAccessKeyId"
    account.iam.update_access_key(**named, Status="Active")
    assert s3.list_buckets()
    account.iam.delete_access_key(**named)
    assert error(s3.list_buckets)[0] == "InvalidAccessKeyId"


def test_members_that_motos_iam_would_drop_are_refused_by_name(account: Account) -> None:
    boundary = {"PermissionsBoundary": "arn:aws:iam::aws:policy/ReadOnlyAccess"}
    code, said = error(lambda: account.iam.create_user(UserName="free", **boundary))
    assert code == "InvalidAction" and "PermissionsBoundary would have no effect" in said
    assert "free" not in [user["UserName"] for user in account.iam.list_users()["Users"]]
    code, said = error(lambda: account.iam.list_groups(PathPrefix="/a/"))
    assert code == "InvalidAction" and "CreateUser" not in said and "PathPrefix" in said
    account.iam.create_role(
        RoleName="whole", AssumeRolePolicyDocument=policy(TRUST), Path="/p/", Description="d",
        MaxSessionDuration=7200, Tags=[{"Key": "k", "Value": "v"}], **boundary,
    )  # fmt: skip
