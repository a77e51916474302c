"""Storage, messages and CI for a recipe: no stack of ours is named, what is known is filled in."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from cfnlint import api, core

from pipelines.definition import from_recipe
from pipelines.infrastructure.infra_templates import Facts, Part, render_template
from pipelines.infrastructure.serving_roles import build_subject
from pipelines.recipe.read_recipe import load_recipe
from tests.conftest import CHECKOUT, call_module
from trainyard.common.errors import DefinitionError
from trainyard.permissions.role_template import dump_yaml, parse_template

pytestmark = pytest.mark.long


@cache
def facts(recipe: str = "prod", *sets: str, with_key: bool = True) -> Facts:
    path = CHECKOUT / f"recipes/{recipe}.yaml"
    definition, read_ = from_recipe(path, sets), load_recipe(path, sets)
    known = build_subject(definition, read_)
    return Facts(
        definition=definition, subject=known, aws=read_.aws, recipe=f"recipes/{recipe}.yaml",
        with_key=with_key,
    )  # fmt: skip


SERVED = ("deploy.endpoint=live", "deploy.capture_share=1", "monitor.days=1")


def text(document: Any) -> str:
    return json.dumps(document)


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("recipe", ["prod", pytest.param("laptop", marks=pytest.mark.sweep)])
def test_cfn_lint_has_nothing_to_say_and_no_stack_is_named(part: Part, recipe: str):
    sets = SERVED if part is Part.SERVING else ()
    document = render_template(part, facts(recipe, *sets, with_key=recipe == "prod"))
    found = api.lint(dump_yaml(document), core.get_rules([], [], ["I", "W", "E"]), ["us-east-1"])
    assert not found
    assert "ImportValue" not in text(document) and "Stack}" not in text(document["Resources"])


def test_a_recipe_without_a_key_has_no_statement_about_one():
    document = text(render_template(Part.CODEPIPELINE, facts("laptop"))["Resources"])
    assert "kms:" not in document.replace("aws:kms", "")
    assert "kms:Decrypt" in text(render_template(Part.CODEPIPELINE, facts("prod"))["Resources"])


def test_what_a_codepipeline_cannot_have_is_named():
    with pytest.raises(DefinitionError, match="aws.kms_key is alias/ours; the builds"):
        render_template(Part.CODEPIPELINE, facts("prod", "aws.kms_key=alias/ours"))
    china = replace(facts().subject, role="arn:aws-cn:iam::111122223333:role/x")
    with pytest.raises(DefinitionError, match="China's CloudFormation has no AWS::CodeConnections"):
        render_template(Part.CODEPIPELINE, replace(facts(), subject=china))


def test_what_serves_is_of_the_recipes_endpoint_and_has_a_monitor_if_the_recipe_does():
    with pytest.raises(DefinitionError, match="--part serving: the recipe has no endpoint"):
        render_template(Part.SERVING, facts())
    whole = render_template(Part.SERVING, facts("prod", *SERVED))
    given = {name: one.get("Default") for name, one in whole["Parameters"].items()}
    assert (given["Endpoint"], given["ModelPackageGroup"]) == ("live", "trainyard-prod")
    [policy] = whole["Resources"]["DeployRole"]["Properties"]["ManagedPolicyArns"]
    assert policy == "arn:aws:iam::111122223333:policy/trainyard-prod-deploy"
    alone = render_template(Part.SERVING, facts("prod", *SERVED[:2]))
    assert "Monitor" in text(whole) and "Monitor" not in text(alone)
    assert not api.lint(dump_yaml(alone), core.get_rules([], [], ["I", "W", "E"]), ["us-east-1"])


def test_what_exists_is_referred_to():
    known = facts(with_key=False)
    resources = render_template(Part.STORAGE, known)["Resources"]
    assert "Key" not in resources and known.key in text(resources["Bucket"])
    roles = render_template(Part.GITHUB, known)["Resources"]
    [policy] = roles["PlanRole"]["Properties"]["ManagedPolicyArns"]
    assert policy == "arn:aws:iam::111122223333:policy/trainyard-prod-plan"


def test_what_the_recipe_says_is_filled_in_and_the_roles_are_those_of_the_derived_template():
    file = CHECKOUT / "infra/roles.yaml"
    made = parse_template(file.read_text(), str(file))["Resources"]
    assert {f"{name}Arn" for name in made} <= facts().list_imports().keys()
    storage, messages = (render_template(part, facts())["Parameters"] for part in list(Part)[:2])
    given = {name: one.get("Default") for name, one in {**storage, **messages}.items()}
    assert given["Root"] == "trainyard/trainyard-prod"
    assert given["ArtifactBucketName"] == "example-corp-trainyard"
    assert given["PipelineName"] == "trainyard-prod" and given["Email"] == ""
    builds = render_template(Part.CODEPIPELINE, facts())["Parameters"]
    assert builds["Recipe"]["Default"] == "recipes/prod.yaml"
    assert "Default" not in builds["Repository"]


def test_the_command_prints_a_part_and_the_variables_of_a_workflow():
    words = ("--recipe", "recipes/laptop.yaml", "--as", "cloudformation")
    done = call_module("pipelines.infra", *words, "--ci", "github")
    assert done.returncode == 0 and "token.actions.githubusercontent.com" in done.stdout
    assert "variable ARTIFACT_BUCKET=trainyard-laptop" in done.stderr
    both = call_module("pipelines.infra", *words, "--ci", "github", "--part", "storage")
    assert both.returncode == 1 and "each is a stack of its own" in both.stderr
