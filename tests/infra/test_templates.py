"""The templates and the workflow: lint, derived roles, and no permission that is not needed."""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.infrastructure.serving_roles import build_recipe_subject
from pipelines.permissions import HEAD
from tests.infra.lifecycle import expires, old_version_lives
from tests.trainyard.permissions import reference
from trainyard.common.errors import DefinitionError
from trainyard.emulator.events.event_patterns import parse_event_pattern
from trainyard.emulator.events.event_rules import make_event, render_target_input
from trainyard.emulator.events.eventbridge import PACKAGE, SOURCE
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.policy_answer import compare_policies
from trainyard.permissions.role_template import (
    build_template,
    derive_policy,
    dump_yaml,
    extract_policies,
    list_roles,
    parse_template,
)
from trainyard.permissions.statements import WILDCARD_REASONS

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).parent.parent.parent
INFRA = CHECKOUT / "infra"
TEMPLATES = sorted(INFRA.glob("*.yaml"))
ROLES = ["job", "pipeline", "plan", "ci", "events"]  # of a recipe without an endpoint
WORKFLOW = CHECKOUT / ".github/workflows/pipeline.yml"
GITLAB = INFRA / "gitlab-ci.yml"
SERVING = INFRA / "serving.yaml"


@cache
def load(path: Path) -> dict[str, Any]:
    return parse_template(path.read_text(encoding="utf-8"), path.name)


def resources(path: Path, kind: str) -> Iterator[tuple[str, dict]]:
    for name, resource in load(path)["Resources"].items():
        if resource["Type"].startswith(kind):
            yield name, resource["Properties"]


@pytest.fixture(scope="module")
def prod() -> Subject:
    return build_recipe_subject(CHECKOUT / "recipes/prod.yaml", ())


@pytest.fixture(scope="module")
def monitored_subject() -> Subject:
    """prod.yaml with an endpoint that is monitored."""
    sets = ("deploy.endpoint=live", "deploy.capture_share=1", "monitor.days=7")
    return build_recipe_subject(CHECKOUT / "recipes/prod.yaml", sets)


def test_cfn_lint_has_nothing_to_say():
    assert len(TEMPLATES) == 10
    lint = "import sys; from cfnlint.runner import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", lint, "-r", "us-east-1", "-t", *map(str, TEMPLATES)],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_role_takes_the_accounts_permissions_boundary():
    """Accounts of a landing zone refuse a role without one."""
    found = [(p, r) for p in TEMPLATES for _, r in resources(p, "AWS::IAM::Role")]
    assert len(found) == 17
    for path, role in found:
        chosen = role["PermissionsBoundary"]["Fn::If"]
        assert chosen == ["HasBoundary", {"Ref": "PermissionsBoundary"}, {"Ref": "AWS::NoValue"}]
        assert load(path)["Parameters"]["PermissionsBoundary"]["Default"] == ""


def test_the_roles_in_the_repository_are_what_the_command_prints_and_are_read_back(prod: Subject):
    made = build_template(prod, {role: derive_policy(prod, role) for role in ROLES})
    printed = HEAD.format(recipe="recipes/prod.yaml") + dump_yaml(made)
    assert (INFRA / "roles.yaml").read_text(encoding="utf-8") == printed, (
        "python -m pipelines.permissions --recipe recipes/prod.yaml --template > infra/roles.yaml"
    )
    read_back = load(INFRA / "roles.yaml")
    given = extract_policies(read_back, prod, "roles.yaml")
    assert {
        role: compare_policies(derive_policy(prod, role), policy) for role, policy in given.items()
    } == {role: [] for role in ROLES}
    text = dump_yaml(read_back["Resources"])  # nothing of one account is left
    for literal in ("111122223333", "us-east-1", "arn:aws:", "example-corp-trainyard"):
        assert literal not in text


def of_policy(edited: dict, name: str) -> dict:
    return edited["Resources"][name]["Properties"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t["Resources"].pop("EventsRole"), "has no resource EventsRole"),
        (lambda t: of_policy(t, "JobRole").update(ManagedPolicyArns=["x"]),
         "JobRole: has ManagedPolicyArns, whose permissions are not in the file"),
        (lambda t: t["Parameters"]["ArtifactBucket"].pop("Default"),
         "${ArtifactBucket} has no value before it is deployed"),
        (lambda t: of_policy(t, "CiPolicy")["PolicyDocument"]["Statement"][0].update(
            Resource={"Fn::ImportValue": "x"}), "is not known before it is deployed"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_compared_is_refused(change, told: str, prod: Subject):
    edited = copy.deepcopy(load(INFRA / "roles.yaml"))
    change(edited)
    with pytest.raises(DefinitionError, match=re.escape(told)):
        extract_policies(edited, prod, "roles.yaml")


def test_an_edited_template_is_told_by_role_and_one_role_for_both_makes_none(prod: Subject):
    edited = copy.deepcopy(load(INFRA / "roles.yaml"))
    policy = of_policy(edited, "JobRole")["Policies"][0]["PolicyDocument"]
    policy["Statement"][0]["Resource"][0] = "*"
    given = extract_policies(edited, prod, "roles.yaml")
    told = [str(d) for d in compare_policies(derive_policy(prod, "job"), given["job"])]
    assert told == ["excess Read: s3:GetObject on *"]
    assert not compare_policies(derive_policy(prod, "pipeline"), given["pipeline"])
    alone = Subject(name="p", region="us-east-1", role=prod.role, document={"Steps": []})
    with pytest.raises(DefinitionError, match=r"set aws\.job_role to a role other than aws\.role"):
        build_template(alone, {})


def identity_statements() -> Iterator[tuple[str, dict]]:
    for path in TEMPLATES:
        for name, given in resources(path, "AWS::IAM::"):
            documents = [p["PolicyDocument"] for p in given.get("Policies", ())]
            documents += [given["PolicyDocument"]] if "PolicyDocument" in given else []
            for document in documents:
                for statement in document["Statement"]:
                    yield f"{path.name} {name}", statement


def ensure_list(value: Any) -> list:
    return value if isinstance(value, list) else [value]


def test_every_action_in_a_role_exists_and_none_is_a_wildcard():
    assert len({where for where, _ in identity_statements()}) == 17
    for where, statement in identity_statements():
        for action in ensure_list(statement["Action"]):
            reference.action(action)  # KeyError where IAM has none
            if "*" in ensure_list(statement["Resource"]):
                assert not reference.resource_types(action), f"{where}: {action} on *"


def test_every_trust_is_bound_to_whom_it_is_for():
    for path in TEMPLATES:
        for name, given in resources(path, "AWS::IAM::Role"):
            (statement,) = given["AssumeRolePolicyDocument"]["Statement"]
            (keys,) = statement["Condition"].values()
            host = "gitlab.com" if path.stem == "gitlab" else "token.actions.githubusercontent.com"
            service = "Service" in statement["Principal"]
            bound = {"aws:SourceArn"} if service else {f"{host}:aud", f"{host}:sub"}
            assert set(keys) == bound, (path.name, name)


def list_managed_policies(given: dict) -> list[str]:
    """The policies of infra/roles.yaml that a role has."""
    imported = [arn["Fn::ImportValue"]["Fn::Sub"] for arn in given.get("ManagedPolicyArns", ())]
    return [name.partition("-")[2].removesuffix("Arn") for name in imported]


def own_policy(project: dict, role: dict) -> dict:
    """The policy of a build's role, which only this project may assume; its buildspec is there."""
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    source = trust["Condition"]["StringEquals"]["aws:SourceArn"]["Fn::Sub"]
    assert source.endswith(f":project/{project['Name']['Fn::Sub']}")
    assert (CHECKOUT / project["Source"]["BuildSpec"]).is_file()
    (policy,) = role["Policies"]
    return policy


def subjects(name: str, host: str) -> dict[str, list[str]]:
    """Policy → who may assume its role; no pattern."""
    found = {}
    for _, given in resources(INFRA / name, "AWS::IAM::Role"):
        (statement,) = given["AssumeRolePolicyDocument"]["Statement"]
        assert list(statement["Condition"]) == ["StringEquals"]
        (policy,) = list_managed_policies(given)
        said = ensure_list(statement["Condition"]["StringEquals"][f"{host}:sub"])
        found[policy] = [each["Fn::Sub"] for each in said]
    return found


def test_github_may_upsert_as_the_protected_environment_and_as_nothing_else():
    assert subjects("github.yaml", "token.actions.githubusercontent.com") == {
        "PlanPolicy": ["repo:${Repository}:ref:refs/heads/${Branch}"],
        "CiPolicy": ["repo:${Repository}:environment:${Environment}"],
    }
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    assumed = {
        name: step["with"]["role-to-assume"]
        for name, job in jobs.items()
        for step in job["steps"]
        if "configure-aws-credentials" in step.get("uses", "")
    }
    assert assumed == {
        "plan": "${{ vars.AWS_PLAN_ROLE_ARN }}", "upsert": "${{ vars.AWS_UPSERT_ROLE_ARN }}"
    }  # fmt: skip
    assert [name for name, job in jobs.items() if "environment" in job] == ["upsert"]
    assert jobs["upsert"]["environment"] == "prod" and jobs["upsert"]["needs"] == "plan"
    assert jobs["plan"]["needs"] == "test" and "permissions" not in jobs["test"]


def test_gitlab_may_upsert_from_the_branch_for_deployments_and_from_no_other():
    found = subjects("gitlab.yaml", "gitlab.com")
    branches = {policy: [s.rpartition(":")[2] for s in said] for policy, said in found.items()}
    plan = ["${Branch}", "${DeployBranch}"]
    assert branches == {"PlanPolicy": plan, "CiPolicy": ["${DeployBranch}"]}
    jobs = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))
    assert jobs["upsert"]["rules"] == [{"if": '$CI_COMMIT_BRANCH == "deploy"'}]
    assert "$AWS_UPSERT_ROLE_ARN" not in str(jobs["plan"]) and "id_tokens" not in jobs["test"]


def test_each_build_has_a_role_of_its_own_which_may_do_what_the_readme_says_and_no_more():
    projects = dict(resources(INFRA / "ci.yaml", "AWS::CodeBuild::Project"))
    roles = dict(resources(INFRA / "ci.yaml", "AWS::IAM::Role"))
    arn = "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:"
    reads = {"Test": ["Source"], "Plan": ["Source"], "Upsert": ["Source", "Plan"]}
    # The names in the roles are those of the artifacts, which a stage before it has handed on.
    (pipeline,) = [p for _, p in resources(INFRA / "ci.yaml", "AWS::CodePipeline::Pipeline")]
    assert [stage["Name"] for stage in pipeline["Stages"]] == [
        "Source", "Test", "Plan", "Approve", "Upsert"
    ]  # fmt: skip
    told = {v["Name"] for v in projects["UpsertProject"]["Environment"]["EnvironmentVariables"]}
    assert {"SAGEMAKER_PROJECT_NAME", "SAGEMAKER_PROJECT_ID", "SAGEMAKER_PIPELINE_ROLE_ARN",
            "ARTIFACT_BUCKET"} <= told  # fmt: skip
    actions = {a["Name"]: a for stage in pipeline["Stages"] for a in stage["Actions"]}
    given = {n: [each["Name"] for each in actions[n].get("InputArtifacts", ())] for n in reads}
    assert given == reads
    handed = {n: [o["Name"] for o in a.get("OutputArtifacts", ())] for n, a in actions.items()}
    assert {n: o for n, o in handed.items() if o} == {"GitHub": ["Source"], "Plan": ["Plan"]}
    policies = {"Test": [], "Plan": ["PlanPolicy"], "Upsert": ["CiPolicy"]}
    for stage, inputs in reads.items():
        project, role = projects[f"{stage}Project"], roles[f"{stage}Role"]
        assert project["ServiceRole"] == {"Fn::GetAtt": [f"{stage}Role", "Arn"]}
        policy = own_policy(project, role)
        assert list_managed_policies(role) == policies[stage]
        may = {
            action: [r.get("Fn::Sub", r) for r in ensure_list(statement["Resource"])]
            for statement in policy["PolicyDocument"]["Statement"]
            for action in ensure_list(statement["Action"])
        }
        written = {"s3:PutObject", "kms:GenerateDataKey"} if stage == "Plan" else set()
        assert set(may) == written | {
            "logs:CreateLogStream", "logs:PutLogEvents", "s3:GetObject", "s3:GetObjectVersion",
            "kms:Decrypt", "codeconnections:UseConnection",
        }  # fmt: skip
        assert may["logs:PutLogEvents"] == [f"{arn}${{{stage}Logs}}:log-stream:*"]
        below = [f"${{StageBucket.Arn}}/*/{name}/*" for name in inputs]
        assert may["s3:GetObject"] == below
        if written:
            assert may["s3:PutObject"] == ["${StageBucket.Arn}/*/Plan/*"]


def test_buckets_are_private_encrypted_and_only_for_tls():
    found = 0
    for path in TEMPLATES:
        policies = {p["Bucket"]["Ref"]: p for _, p in resources(path, "AWS::S3::BucketPolicy")}
        for name, bucket in resources(path, "AWS::S3::Bucket"):
            if "BucketEncryption" not in bucket:
                continue  # its policy
            found += 1
            assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
            (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
            assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
            (deny,) = policies[name]["PolicyDocument"]["Statement"]
            assert (deny["Effect"], deny["Condition"]) == (
                "Deny", {"Bool": {"aws:SecureTransport": "false"}}
            )  # fmt: skip
    assert found == 2


def test_the_artifact_bucket_keeps_versions_and_deletes_checkpoints_alone():
    """tests/test_registered.py checks the URIs of a registered package."""
    bucket = dict(resources(INFRA / "storage.yaml", "AWS::S3::Bucket"))["Bucket"]
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    root = load(INFRA / "storage.yaml")["Parameters"]["Root"]["Default"]
    found = {
        folder: (
            expires(f"{root}/{folder}/a/b", root),
            old_version_lives(f"{root}/{folder}/a", root),
        )
        for folder in ("runs", "code", "definitions", "checkpoints", "anything-new")
    }
    lasting = {folder: (False, True) for folder in found}
    assert found == lasting | {"checkpoints": (True, False)}


def test_events_may_use_the_key_for_topics_and_no_source_condition_stops_them():
    """With aws:SourceArn or aws:SourceAccount in the key's policy, nothing is delivered."""
    ((_, key),) = resources(INFRA / "storage.yaml", "AWS::KMS::Key")
    (events,) = [s for s in key["KeyPolicy"]["Statement"] if s["Sid"] == "EventsToTopic"]
    assert events["Principal"] == {"Service": "events.amazonaws.com"}
    assert list(events["Condition"]["ArnLike"]) == ["kms:EncryptionContext:aws:sns:topicArn"]
    assert list(events["Condition"]) == ["ArnLike"]


def test_what_a_stack_imports_another_exports(prod: Subject, monitored_subject: Subject):
    text = {path: path.read_text(encoding="utf-8") for path in TEMPLATES}
    imported = {m for t in text.values() for m in re.findall(r"ImportValue: !Sub (\$\S+)", t)}
    exported = set()
    for path, stack in (("storage.yaml", "StorageStack"), ("roles.yaml", "RolesStack")):
        for output in load(INFRA / path)["Outputs"].values():
            exported.add(output["Export"]["Name"]["Fn::Sub"].replace("AWS::StackName", stack))
    more = {role.logical for role in list_roles(monitored_subject)} - {
        role.logical for role in list_roles(prod)
    }
    exported |= {f"${{RolesStack}}-{logical}Arn" for logical in more}
    assert imported <= exported, imported - exported


def test_no_build_waits_for_a_run_whose_end_the_rule_tells(prod: Subject):
    (rule,) = [r for n, r in resources(INFRA / "events.yaml", "AWS::Events::Rule")
               if n == "RunEnded"]  # fmt: skip
    ends = rule["EventPattern"]["detail"]["currentPipelineExecutionStatus"]
    assert ends == ["Succeeded", "Failed", "Stopped"]
    assert "RoleArn" not in rule["Targets"][0]  # SNS goes by its own policy
    assert load(INFRA / "events.yaml")["Parameters"]["PipelineName"]["Default"] == prod.name
    builds = (INFRA / "buildspec").glob("*.yml")
    files = [CHECKOUT / "buildspec.yml", *builds, WORKFLOW, GITLAB]
    assert len(files) == 9
    for file in files:
        assert "--wait" not in file.read_text(encoding="utf-8"), file


def test_a_package_is_deployed_when_it_is_approved_and_its_arn_is_a_variable():
    (rule,) = [r for n, r in resources(SERVING, "AWS::Events::Rule") if n == "Approved"]
    pattern = copy.deepcopy(rule["EventPattern"])
    pattern["detail"]["ModelPackageGroupName"] = ["trainyard-prod"]
    detail = {
        "ModelPackageGroupName": "trainyard-prod",
        "ModelPackageArn": 'arn"; $(touch x)',
        "ModelApprovalStatus": "Approved",
        "UpdatedModelPackageFields": ["ModelApprovalStatus", "ApprovalDescription"],
    }
    matches = parse_event_pattern(json.dumps(pattern))
    event = make_event(SOURCE, PACKAGE, detail, [])
    assert matches(event)
    for other in ({"ModelApprovalStatus": "Rejected"}, {"ModelPackageGroupName": "others"},
                  {"UpdatedModelPackageFields": ["ApprovalDescription"]}):  # fmt: skip
        assert not matches(make_event(SOURCE, PACKAGE, detail | other, []))
    (target,) = rule["Targets"]
    given = json.loads(render_target_input(target, event))
    (variable,) = given.pop("environmentVariablesOverride")
    assert variable == {"name": "PACKAGE", "type": "PLAINTEXT", "value": 'arn"; $(touch x)'}
    assert given == {}


def test_the_builds_of_serving_have_the_derived_policies_and_their_log_and_clone():
    roles = dict(resources(SERVING, "AWS::IAM::Role"))
    for name, project in resources(SERVING, "AWS::CodeBuild::Project"):
        word = name.removesuffix("Project")
        assert list_managed_policies(roles[f"{word}Role"]) == [f"{word}Policy"]
        policy = own_policy(project, roles[f"{word}Role"])
        assert [s["Sid"] for s in policy["PolicyDocument"]["Statement"]] == ["OwnLog", "Clone"]


@pytest.mark.parametrize("word", ["deploy", "monitor"])
def test_no_variable_is_taken_for_a_command(word: str, tmp_path: Path):
    """The build's line really runs, in a folder whose python prints its words."""
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\nimport json, sys; print(json.dumps(sys.argv[1:]))\n")
    python.chmod(0o755)
    buildspec = yaml.safe_load((INFRA / f"buildspec/{word}.yml").read_text(encoding="utf-8"))
    (command,) = buildspec["phases"]["build"]["commands"]
    names = ("PACKAGE", "RECIPE", "ENVIRONMENT", "START_PARAMETER", "AWS_REGION")
    evil = "$(touch evil); `touch evil` 'a' \"b\""
    more = {"SAGEMAKER_PIPELINE_ROLE_ARN": "r", "ARTIFACT_BUCKET": "b", "START": "yes"}
    done = subprocess.run(
        ["bash", "-c", command], env=dict.fromkeys(names, evil) | more, cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    asked = json.loads(done.stdout)
    assert asked[:2] == ["-m", f"pipelines.{word}"] and not (tmp_path / "evil").exists()
    assert asked[asked.index("--recipe") + 1] == asked[asked.index("--env") + 1] == evil
    assert asked[2] == evil if word == "deploy" else "--start" in asked


def test_a_spent_budget_denies_the_pipelines_role_to_start_trainings():
    found = load(SERVING)["Resources"]
    (deny,) = found["StopPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert deny["Effect"] == "Deny"
    (may,) = found["BudgetRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    assert may["Condition"] == {"ArnEquals": {"iam:PolicyARN": {"Ref": "StopPolicy"}}}
    budget = found["Budget"]["Properties"]["Budget"]
    assert budget["BudgetName"] == found["Stop"]["Properties"]["BudgetName"]
    filters = budget["CostFilters"]["TagKeyValue"]
    assert filters == [{"Fn::Join": ["$", [{"Fn::Sub": "user:${TagKey}"}, {"Ref": "TagValue"}]]}]
    board = found["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    shown = [one["properties"] for one in json.loads(board)["widgets"]]
    assert len(shown) == 4 and all("${Endpoint}" in json.dumps(one["metrics"]) for one in shown)


WORKFLOWS = [*sorted(WORKFLOW.parent.glob("*.yml")), GITLAB]
GITHUBS = ("vendor.github-workflows",)
GITLABS = ("vendor.gitlab-ci", "--data-transform", "gitlab-ci")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_fit_their_schema_and_pin_what_they_run(path: Path):
    schema = GITLABS if path == GITLAB else GITHUBS
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", *schema, str(path)],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    workflow = {} if path == GITLAB else yaml.safe_load(path.read_text(encoding="utf-8"))
    assert path == GITLAB or workflow["permissions"] == {"contents": "read"}
    for job in workflow.get("jobs", {}).values():
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))
            # a value that others choose must not stand in a shell line
            assert "${{" not in step.get("run", "")


def test_the_workflow_and_the_build_stages_run_the_same_commands():
    def verbs(*files: Path) -> list[list[str]]:
        """Verbs and options, but for where the plan lies and where its print goes."""
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        lines = re.findall(r"-m (pipelines\..*)", re.sub(r"\s*\\\n\s*", " ", text))
        cut = r' \|\| status.*| > plan\.txt|"?\S*plan\.json"?'
        return [sorted(re.sub(cut, "", line).split()) for line in lines]

    stages = [INFRA / "buildspec/plan.yml", INFRA / "buildspec/upsert.yml"]
    assert len(verbs(*stages)) == 4
    assert verbs(*stages) == verbs(WORKFLOW) == verbs(GITLAB)


def test_the_readme_lists_the_forced_wildcards_with_their_reasons():
    text = (INFRA / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+:\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert rows == dict(WILDCARD_REASONS)
