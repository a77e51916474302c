"""What looks like a secret: named, refused in a recipe, and shown nowhere."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import CHECKOUT, call_module
from tests.pipelines.upserting import definition
from trainyard.plan.definition_diff import HIDDEN, diff_definitions
from trainyard.plan.plan_display import format_differences
from trainyard.secrets import has_url_secret, is_secret, iter_secret_paths

pytestmark = pytest.mark.long

LAPTOP = CHECKOUT / "recipes/laptop.yaml"


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "token", "GITHUB_TOKEN_2", "accessToken", "HF_TOKEN_READ", "DB_PASSWORD",
     "AWSAccessKeyId", "AWS_SECRET_ACCESS_KEY", "wandb_api_key", "--hub-token"],
)  # fmt: skip
def test_a_name_tells_a_secret(name: str):
    assert is_secret(name, "abcdefgh")
    for elsewhere in ("", "arn:aws:secretsmanager:us-east-1:1:secret:x", "${SECRET}", "<yours>"):
        assert not is_secret(name, elsewhere)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # of public examples: model settings and switches
        ("pad_token", "[PAD]"), ("entity_two_start_token", "x"), ("MAX_TOTAL_TOKENS", "4096"),
        ("tokenizer_name", "gpt2"), ("TS_DISABLE_TOKEN_AUTHORIZATION", "true"),
        ("iam_credentials_provider_type", "ROLE"), ("TokenThroughput", "tokens a second"),
        ("use_auth_token", "True"), ("token-column-name", "tokens"),
    ],
)  # fmt: skip
def test_what_is_called_alike_is_none(name: str, value: str):
    assert not is_secret(name, value)


WORD = st.text("abcXYZ019_~.", min_size=1, max_size=12)


@given(st.sampled_from(["https", "postgresql", "s3+x"]), WORD, WORD, WORD)
def test_every_url_with_a_password_is_told_and_none_without(scheme, user, password, host):
    assert has_url_secret(f"at {scheme}://{user}:{password}@{host}/x")
    assert not has_url_secret(f"{scheme}://{user}@{host}:80/{password}")
    assert not has_url_secret(f"{scheme}://{host}:80/a@{password}")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train.environment.HF_TOKEN", "hf_a1b2c3d4"),
        ("train.environment.TRACKING", "https://ci:a1b2c3d4@mlflow.example.com"),
        ("train.loop.mlflow_tracking_uri", "https://ci:a1b2c3d4@mlflow.example.com"),
        ("aws.tags.db_password", "a1b2c3d4"),
    ],
)
def test_a_recipe_with_a_secret_is_refused_by_its_field_and_not_repeated(field: str, value: str):
    done = call_module("pipelines.definition", "--recipe", str(LAPTOP), "--set", f"{field}={value}")
    assert done.returncode == 1 and f"{field}: looks like a secret" in done.stderr
    assert "a1b2c3d4" not in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_a_plan_hides_what_somebody_wrote_into_the_pipeline():
    """It is shown as changed all the same, between two secrets, too."""

    def state(secret: str | None):
        made = definition("1").state
        body = json.loads(made.definition)
        default = {"Name": "DbPassword", "Type": "String", "DefaultValue": secret or "none"}
        body["Parameters"] = [default]
        arguments = body["Steps"][0]["Arguments"]
        if secret:
            arguments["Environment"] |= {"HF_TOKEN": secret, "URL": f"https://a:{secret}@b"}
        return type(made)(**made.as_json() | {"definition": json.dumps(body)})

    for before, after in ((None, "hunter2"), ("hunter1", "hunter2"), ("hunter1", None)):
        diff = diff_definitions(state(before), state(after))
        text = "\n".join(line.plain for line in format_differences(diff))
        assert "hunter" not in text and HIDDEN in text
        assert {change.path for change in diff.steps[0].changes} == {
            "Environment.HF_TOKEN", "Environment.URL"
        }  # fmt: skip
        assert [change.path for change in diff.parameters] == ["DbPassword"]


def test_find_gives_the_path_of_each():
    pairs = [{"Name": "TOKEN", "Value": "x"}, {"Name": "b", "Value": "x"}]
    tree = {"a": pairs, "c": ["--token", "x"]}
    assert list(iter_secret_paths(tree)) == [("a", 0, "Value"), ("c", 1)]
