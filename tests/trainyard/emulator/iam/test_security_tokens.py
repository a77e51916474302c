"""Sessions: each member of AssumeRole limits them, or is refused by its name."""

import json
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


def policy(*statements: dict) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def session(account: Account, role: str, service: str, by: Any = None, **members: Any) -> Any:
    """Return a client with the keys of a session of the role; ``by``: STS of who assumes it."""
    keys = (by or account.sts).assume_role(RoleArn=role, RoleSessionName="me", **members)
    given = keys["Credentials"]
    return account.client(
        service, given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]
    )


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


@pytest.mark.parametrize("limit", LIMITS, ids=["policy", "own", "aws"])
@pytest.mark.parametrize("role", ["wide", "AmazonSageMaker-ExecutionRole"])
def test_session_policies_bind_a_session_of_any_role(
    account: Account, mode: Mode, role: str, limit: dict
) -> None:
    account.authority.mode = "derived"
    names = [p["PolicyName"] for p in account.iam.list_policies(Scope="Local")["Policies"]]
    if "reading" not in names:
        account.iam.create_policy(PolicyName="reading", PolicyDocument=policy(READ))
    trust = TRUST if role == "wide" else None
    if trust:
        account.role("wide", EVERYTHING, policy="own", trust=trust)
    else:
        account.iam.get_role(RoleName=role)
        account.iam.update_assume_role_policy(RoleName=role, PolicyDocument=policy(TRUST))
    account.authority.mode = mode
    account.aws.put("a", "x")
    s3 = session(account, f"{OWN}:role/{role}", "s3", **limit)
    assert s3.get_object(Bucket="bkt", Key="a")["Body"].read() == b"x"
    code, message = error(lambda: s3.put_object(Bucket="bkt", Key="a", Body=b"y"))
    assert code == "AccessDenied" and "no session policy allows the s3:PutObject" in message


@pytest.mark.parametrize("limit", [LIMITS[0], LIMITS[2]], ids=["policy", "aws"])
def test_session_policies_bind_the_administrator_of_another_account(
    account: Account, mode: Mode, limit: dict
) -> None:
    plain = session(account, ENTRY, "s3")
    bucket = f"of-another-{mode}-{next(iter(limit)).lower()}"
    plain.create_bucket(Bucket=bucket)
    code, message = error(
        lambda: session(account, ENTRY, "s3", **limit).put_object(Bucket=bucket, Key="a", Body=b"")
    )
    assert code == "AccessDenied" and "no session policy allows the s3:PutObject" in message
    plain.put_object(Bucket=bucket, Key="a", Body=b"")


WRONG = [
    (
        {"DurationSeconds": 7200},
        "ValidationError",
        "1 hour session limit for roles assumed by role",
    ),
    ({"Policy": "{}"}, "MalformedPolicyDocument", "has no Statement"),
    ({"Policy": "x" * 2049}, "ValidationError", "at most 2048 characters"),
    (
        {"PolicyArns": [{"arn": f"{OWN}:policy/none"}]},
        "ValidationError",
        "policy/none is no policy",
    ),
    (
        {"PolicyArns": [{"arn": f"{OWN}:policy/n{n}"} for n in range(11)]},
        "ValidationError",
        "most 10",
    ),
    ({"RoleSessionName": "a b"}, "ValidationError", "RoleSessionName 'a b'"),
    ({"RoleArn": "arn:aws:iam::1:role/short"}, "ValidationError", "role/short is invalid"),
    (
        {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "A", "Value": "2"}]},
        *("InvalidParameterValue", "Duplicate tag keys found."),
    ),
    (
        {"Tags": [{"Key": "a", "Value": "1"}], "TransitiveTagKeys": ["b"]},
        *("InvalidParameterValue", "transitive tag key must be included"),
    ),
    ({"SourceIdentity": "ann"}, "InvalidAction", "AssumeRole: SourceIdentity would have no effect"),
    ({"SerialNumber": "GAHT12345678"}, "InvalidAction", "SerialNumber would have no effect"),
    ({"TokenCode": "123456"}, "InvalidAction", "TokenCode would have no effect"),
    (
        {
            "ProvidedContexts": [
                {"ProviderArn": f"{OWN}:oidc-provider/x", "ContextAssertion": "abcd"}
            ]
        },
        *("InvalidAction", "ProvidedContexts would have no effect"),
    ),
]


@pytest.mark.parametrize(("members", "code", "said"), WRONG)
def test_what_is_wrong_or_has_no_effect_is_refused(
    account: Account, members: dict, code: str, said: str
) -> None:
    request = {"RoleArn": ENTRY.replace("2", "3"), "RoleSessionName": "me"} | members
    found, message = error(lambda: account.sts.assume_role(**request))
    assert found == code and said in message
    assert not (account.aws.state / "accounts/333333333333").exists(), "nothing is opened for it"


def test_a_session_lasts_no_longer_than_its_role_allows(account: Account) -> None:
    account.role("long", READ, policy="own", MaxSessionDuration=7200)
    account.role("short", READ, policy="own")
    account.iam.create_user(UserName="ann")
    key = account.iam.create_access_key(UserName="ann")["AccessKey"]
    sts = account.client("sts", key["AccessKeyId"], key["SecretAccessKey"])

    def ask(role: str, seconds: int, by: Any = sts) -> Any:
        arn = f"{OWN}:role/{role}"
        return by.assume_role(RoleArn=arn, RoleSessionName="me", DurationSeconds=seconds)

    end = ask("long", 7200)["Credentials"]["Expiration"].timestamp()
    assert end == pytest.approx(time.time() + 7200, abs=60)
    for role, seconds in (("long", 7201), ("short", 3601)):
        code, said = error(lambda role=role, seconds=seconds: ask(role, seconds))
        assert (
            code == "ValidationError" and "exceeds the MaxSessionDuration set for this role" in said
        )
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
    assert code == "ExpiredToken" and "its DurationSeconds are over" in said


def test_an_external_id_and_session_tags_are_what_policies_ask_for(account: Account) -> None:
    outside = TRUST | {"Condition": {"StringEquals": {"sts:ExternalId": "secret"}}}
    role = account.role("outside", READ, policy="own", trust=outside)
    own = READ | {"Resource": "arn:aws:s3:::bkt/${aws:PrincipalTag/team}/*"}
    tagged = account.role(
        "tagged", own, EVERYTHING | {"Action": "sts:*"}, policy="own", trust=TRUST
    )
    for key in ("red/a", "blue/a"):
        account.aws.put(key, "x")
    account.authority.mode = "enforce"
    try:
        assert error(lambda: session(account, role, "s3"))[0] == "AccessDenied"
        assert error(lambda: session(account, role, "s3", ExternalId="other"))[0] == "AccessDenied"
        assert session(account, role, "s3", ExternalId="secret")
        tags = {"Tags": [{"Key": "Team", "Value": "red"}]}
        code, said = error(lambda: session(account, tagged, "s3", **tags))
        assert code == "AccessDenied" and "sts:TagSession" in said
        trust = policy(TAGGING)
        account.iam.update_assume_role_policy(RoleName="tagged", PolicyDocument=trust)
        s3 = session(account, tagged, "s3", **tags)
        assert s3.get_object(Bucket="bkt", Key="red/a")
        assert error(lambda: s3.get_object(Bucket="bkt", Key="blue/a"))[0] == "AccessDenied"
        first = session(account, tagged, "sts", **tags, TransitiveTagKeys=["team"])
        s3 = session(account, tagged, "s3", by=first)
        assert s3.get_object(Bucket="bkt", Key="red/a")
        code, said = error(
            lambda: session(account, tagged, "s3", by=first, Tags=[{"Key": "team", "Value": "x"}])
        )
        assert code == "InvalidParameterValue" and "was set as transitive" in said
    finally:
        account.authority.mode = "derived"


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
def test_credentials_that_would_not_be_true_are_refused(
    account: Account, operation: str, members: dict
) -> None:
    code, said = error(lambda: getattr(account.sts, operation)(**members))
    assert code == "InvalidAction" and "here only AssumeRole makes credentials" in said


@pytest.mark.parametrize("operation", ["WithWebIdentity", "WithSAML"])
def test_no_token_of_an_identity_provider_is_taken_unverified(
    account: Account, operation: str
) -> None:
    form = {"Action": f"AssumeRole{operation}", "RoleArn": f"{OWN}:role/any"}
    answer = signed(
        account, "POST", form | {"RoleSessionName": "me", "WebIdentityToken": "made up"}
    )
    assert answer.status_code == 400 and "does not implement AssumeRole" in answer.text


def signed(account: Account, method: str, form: dict[str, str]) -> requests.Response:
    """Send a request of the query protocol, in the address or in the body."""
    url, body = account.aws.endpoint.url + "/", ""
    if method == "GET":
        url += f"?{urlencode(form)}"
    else:
        body = urlencode(form)
    headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
    request = AWSRequest(method, url, headers, body)
    env = account.aws.endpoint.env
    keys = boto3.Session(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]).get_credentials()
    SigV4Auth(keys, "sts", "us-east-1").add_auth(request)
    return requests.request(method, url, headers=dict(request.headers), data=body, timeout=30)


def test_a_request_in_the_address_is_held_to_the_same(account: Account) -> None:
    form = {"Action": "AssumeRole", "Version": "2011-06-15", "RoleSessionName": "me"}
    role = {"RoleArn": f"{OWN}:role/nobodys"}
    assert "AccessKeyId" in signed(account, "GET", form | role).text
    answer = signed(account, "GET", form | role | {"DurationSeconds": "7200"})
    assert answer.status_code == 400 and "role chaining" in answer.text
    account.authority.mode = "enforce"
    try:
        assert signed(account, "GET", form | role).status_code == 403
    finally:
        account.authority.mode = "derived"


def test_a_users_key_ends_where_iam_says_so(account: Account) -> None:
    """A key that nobody has any more must not be taken for the administrator's."""
    account.iam.create_user(UserName="bob")
    key = account.iam.create_access_key(UserName="bob")["AccessKey"]
    s3 = account.client("s3", key["AccessKeyId"], key["SecretAccessKey"])
    named = {"UserName": "bob", "AccessKeyId": key["AccessKeyId"]}
    assert s3.list_buckets()
    account.iam.update_access_key(**named, Status="Inactive")
    assert error(s3.list_buckets)[0] == "InvalidAccessKeyId"
    account.iam.update_access_key(**named, Status="Active")
    assert s3.list_buckets()
    account.iam.delete_access_key(**named)
    assert error(s3.list_buckets)[0] == "InvalidAccessKeyId"


def test_members_that_motos_iam_would_drop_are_refused_by_name(account: Account) -> None:
    boundary = "arn:aws:iam::aws:policy/ReadOnlyAccess"
    code, said = error(
        lambda: account.iam.create_user(UserName="free", PermissionsBoundary=boundary)
    )
    assert code == "InvalidAction" and "PermissionsBoundary would have no effect" in said
    assert "free" not in [user["UserName"] for user in account.iam.list_users()["Users"]]
    code, said = error(lambda: account.iam.list_groups(PathPrefix="/a/"))
    assert code == "InvalidAction" and "CreateUser" not in said and "PathPrefix" in said
    trust = policy(TRUST)
    account.role("bounded", READ, PermissionsBoundary=boundary, Description="d", Path="/p/")
    account.iam.create_role(
        RoleName="whole", AssumeRolePolicyDocument=trust, Path="/p/", Description="d",
        MaxSessionDuration=7200, PermissionsBoundary=boundary, Tags=[{"Key": "k", "Value": "v"}],
    )  # fmt: skip
