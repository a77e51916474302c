"""What is derived: real actions on the right resources, and no wildcard that AWS does not force."""

import copy
import dataclasses
import itertools
import json
import re
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import (
    condition_step,
    json_get,
    pipeline,
    process_step,
    training,
)
from tests.trainyard.permissions import reference
from tests.trainyard.permissions.conftest import RECIPES
from trainyard.common.errors import DefinitionError
from trainyard.language.step_types import STEP_TYPES
from trainyard.permissions.pipeline_subject import Subject, read_subject
from trainyard.permissions.policy_answer import compare_policies
from trainyard.permissions.role_template import derive_policy, list_gaps, list_roles
from trainyard.permissions.statements import WILDCARD_REASONS, find_forced_wildcards
from trainyard.permissions.step_requests import BY_PIPELINE, COLLECTORS, NOT_DERIVED, list_job_roles

pytestmark = pytest.mark.long

# where a wildcard may stand in an ARN, because the service or the run makes the name
PATTERNS = (
    r"arn:aws:s3:::[a-z0-9.-]+/[^*?]+/\*",  # below a prefix
    r"arn:aws:s3:::[a-z0-9.-]+/[^*?]+/runs/\*(/[^*?]+)+(/\*/output/model\.tar\.gz)?",
    r"arn:aws:logs:[^*?]+:log-group:/aws/sagemaker/(\w+|Endpoints/\*):(log-stream:)?\*",
    r"arn:aws:sagemaker:[^*?]+:(processing|training)-job/pipelines-\*",
    r"arn:aws:sagemaker:[^*?]+:model-package/[\w-]+/\*",
    r"arn:aws:sagemaker:[^*?]+:(model|endpoint-config)/live-trainyard-prod-\*",  # and a version
    r"arn:aws:cloudwatch:[^*?]+:alarm:live-trainyard-prod-\*-\w+",
    r"arn:aws:sagemaker:[^*?]+:pipeline/[\w-]+/execution/\*",
    r"arn:aws:ec2:[^*?]+:network-interface/\*",  # bound by ec2:Subnet, or by the subnet beside it
    r"arn:aws:kms:[^*?]+:key/\*",  # bound by kms:ResourceAliases
)
NAMES = (*RECIPES, "corners")
ROLES = ("job", "pipeline", "plan", "ci", "events")
SERVING = ("deploy", "monitor")
"""Roles of a recipe with these sections, as "corners" is."""


def test_these_are_all_roles(subject):
    assert names_of(subject("prod")) == list(ROLES)
    assert (
        names_of(subject("corners")) == [role.name for role in list_roles()] == [*ROLES, *SERVING]
    )
    for role in SERVING:
        with pytest.raises(DefinitionError, match=f"needs a recipe with the section {role}"):
            derive_policy(subject("prod"), role)


def by_sid(subject: Subject, role: str, job_role: str | None = None) -> dict[str, dict]:
    return {s["Sid"]: s for s in derive_policy(subject, role, job_role)["Statement"]}


def names_of(subject: Subject) -> list[str]:
    return [role.name for role in list_roles(subject)]


def statements(subject: Subject) -> list[dict]:
    return [s for role in names_of(subject) for s in derive_policy(subject, role)["Statement"]]


def assert_real(statements: list[dict]) -> None:
    for statement in statements:
        for action, resource in itertools.product(statement["Action"], statement["Resource"]):
            assert resource == "*" or reference.fits(action, resource), (action, resource)


@pytest.mark.parametrize("name", NAMES)
def test_every_action_exists_and_acts_on_such_a_resource(name: str, subject):
    found = statements(subject(name))
    assert_real(found)
    for statement in found:
        assert not any("*" in action for action in statement["Action"])
        for action in statement["Action"]:
            known = reference.resource_types(action)
            assert statement["Resource"] != ["*"] or not known, f"{action} can be limited"
        for keys in statement.get("Condition", {}).values():
            for action in statement["Action"]:
                missing = set(keys) - reference.condition_keys(action)
                assert not missing, f"{action} knows no {missing}: it would never apply"


@pytest.mark.parametrize("name", NAMES)
def test_no_wildcard_stands_where_aws_does_not_force_it(name: str, subject):
    for statement in statements(subject(name)):
        for resource in statement["Resource"]:
            if resource == "*":
                assert set(statement["Action"]) <= set(WILDCARD_REASONS), statement
            elif "*" in resource or "?" in resource:
                assert any(re.fullmatch(p, resource) for p in PATTERNS), resource
        if any("key/*" in resource for resource in statement["Resource"]):
            assert "kms:ResourceAliases" in statement["Condition"]["ForAnyValue:StringEquals"]
        if any("network-interface/*" in resource for resource in statement["Resource"]):
            beside = [r for r in statement["Resource"] if ":subnet/" in r]
            assert beside or "ec2:Subnet" in statement["Condition"]["ArnEquals"]


def test_the_forced_ones_are_those_without_resource_types_and_all_are_in_use(subject):
    assert not [action for action in WILDCARD_REASONS if reference.resource_types(action)]
    used = {
        action for name in NAMES for role in names_of(subject(name))
        for action in find_forced_wildcards(derive_policy(subject(name), role))
    }  # fmt: skip
    assert used == set(WILDCARD_REASONS), "the table names what nothing needs"


@pytest.mark.parametrize("name", NAMES)
def test_what_an_action_depends_on_is_allowed_with_it(name: str, subject):
    """The reference's dependent actions: AddTags and PassRole are asked for inside a Create, and
    appear in no log of their own (aws/aws-cdk#32294).
    """
    for role in names_of(subject(name)):
        found = {a for s in derive_policy(subject(name), role)["Statement"] for a in s["Action"]}
        needed = {n for action in found for n in reference.dependent_actions(action)}
        assert needed - found <= {"ec2:CreateTags"}, role  # the service tags no interface


def test_what_is_made_may_be_tagged_where_it_is_made(subject):
    for role in ("pipeline", "ci", "deploy"):
        found = derive_policy(subject("corners"), role)["Statement"]
        makes = [s["Resource"] for s in found
                 if any(a.startswith("sagemaker:Create") for a in s["Action"])]  # fmt: skip
        tags = [s["Resource"] for s in found if "sagemaker:AddTags" in s["Action"]]
        assert sorted(makes) == sorted(tags)


def test_two_roles_hand_over_only_each_other(subject):
    """CI may hand on the pipeline's role, pipeline and deploy the jobs', the jobs nothing."""
    prod = subject("corners")
    passed = {
        (role, r.partition("role/")[2], json.dumps(s["Condition"]))
        for role in names_of(prod)
        for s in derive_policy(prod, role)["Statement"]
        if "iam:PassRole" in s["Action"]
        for r in s["Resource"]
    }
    sagemaker = json.dumps({"StringEquals": {"iam:PassedToService": ["sagemaker.amazonaws.com"]}})
    pairs = {"pipeline": "job", "ci": "pipeline", "deploy": "job"}
    assert passed == {(by, f"trainyard-prod-{role}", sagemaker) for by, role in pairs.items()}
    account = "arn:aws:iam::111122223333:role"
    roles = {s["Arguments"].get("RoleArn") for s in prod.document["Steps"]} - {None}
    assert roles == {f"{account}/trainyard-prod-job"}
    assert prod.role == f"{account}/trainyard-prod-pipeline"


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_can_only_read(name: str, subject):
    """By the reference's own levels; kms:Decrypt, which it calls Write, is how S3 reads."""
    for statement in derive_policy(subject(name), "plan")["Statement"]:
        levels = {reference.action(a)["access_level"] for a in statement["Action"]}
        assert levels <= {"Read", "List"} or statement["Action"] == ["kms:Decrypt"], statement


@pytest.mark.parametrize("name", NAMES)
def test_who_runs_a_pipeline_cannot_approve_what_it_registers(name: str, subject):
    """Nobody's role updates a package, and what is registered is pending, whoever defines it."""
    found = statements(subject(name))
    assert not [s for s in found if "sagemaker:UpdateModelPackage" in s["Action"]]
    [register] = [s for s in found if "sagemaker:CreateModelPackage" in s["Action"]]
    pending = {"sagemaker:ModelApprovalStatus": ["PendingManualApproval"]}
    assert register["Condition"] == {"StringEquals": pending}


def test_ci_may_do_whatever_a_plan_may(subject):
    plan, ci = (derive_policy(subject("prod"), role) for role in ("plan", "ci"))
    assert {d.kind for d in compare_policies(ci, plan)} == {"shortage"}
    assert {d.kind for d in compare_policies(plan, ci)} == {"excess"}


def test_jobs_touch_the_prefixes_that_their_requests_name_and_no_others(subject):
    found = by_sid(subject("prod"), "job")
    root = "arn:aws:s3:::example-corp-trainyard/trainyard/trainyard-prod"
    corpus = "arn:aws:s3:::example-corp-corpus"
    inputs = [f"{corpus}/{p}{end}" for p in ("tokenizers/32k", "web-2026-10") for end in ("", "/*")]
    ours = [f"{root}/{folder}/*" for folder in ("checkpoints", "code", "runs")]
    assert found["Read"]["Resource"] == [*inputs, *ours]
    assert found["Write"]["Resource"] == [f"{root}/checkpoints/*", f"{root}/runs/*"]
    assert found["Write"]["Action"] == ["s3:PutObject"]
    listed = {r: s["Condition"] for s in found.values() if s["Sid"].startswith("List")
              for r in s["Resource"]}  # fmt: skip
    assert "web-2026-10" in listed[corpus]["StringLike"]["s3:prefix"]  # as the service lists it
    assert "web-2026-10/*" in listed[corpus]["StringLike"]["s3:prefix"]
    assert len(listed) == 2
    repository = "arn:aws:ecr:us-east-1:763104351884:repository/pytorch-training"
    assert found["Images"]["Resource"] == [repository]


def test_a_recipe_without_key_vpc_or_bucket_of_others_gets_none_of_their_statements(subject):
    actions = {a for s in derive_policy(subject("laptop"), "job")["Statement"] for a in s["Action"]}
    services = {action.partition(":")[0] for action in actions}
    assert services == {"s3", "ecr", "logs", "cloudwatch"}


def test_a_script_on_efs_and_on_fsx_gets_what_mounts_them(subject):
    found = subject("mounts")
    statements = by_sid(found, "job")
    system = "arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/fs-0123456789"
    assert statements["ElasticFileSystems"]["Resource"] == [system]
    assert statements["FileSystems"]["Action"] == ["fsx:DescribeFileSystems"]
    [train] = [step for step in found.document["Steps"] if step["Name"] == "Train"]
    channels = {one["ChannelName"]: one for one in train["Arguments"]["InputDataConfig"]}
    mounted = [n for n, one in channels.items() if "FileSystemDataSource" in one["DataSource"]]
    assert sorted(mounted) == ["more", "train", "validation"]
    assert {one["InputMode"] for one in channels.values() if "InputMode" in one} == {"File"}
    assert train["DependsOn"] == ["Shard"] and "CacheConfig" not in train


def test_corners_get_their_statements(subject):
    def actions(name: str) -> set[str]:
        return {a for s in derive_policy(subject(name), "job")["Statement"] for a in s["Action"]}

    more = actions("corners") - actions("prod")
    assert "fsx:DescribeFileSystems" in more and "sagemaker-mlflow:LogBatch" in more
    services = {action.partition(":")[0] for action in more}
    assert services == {"cloudwatch", "fsx", "sagemaker-mlflow", "codeartifact", "sts"}
    found = by_sid(subject("corners"), "job")
    names = found["DataKeysByAlias"]["Condition"]["ForAnyValue:StringEquals"]
    assert names == {"kms:ResourceAliases": ["alias/ours"]}
    assert found["VolumeKeysByAlias"]["Condition"]["Bool"]  # beside the alias'
    assert "DataKeys" not in found
    domain = "arn:aws:codeartifact:us-east-1:111122223333:domain/corp"
    assert found["PackageToken"]["Resource"] == [domain]
    captured = "arn:aws:s3:::example-corp-trainyard/trainyard/trainyard-prod/captured/*"
    assert captured in found["Write"]["Resource"]  # by the endpoint, whose model has this role
    assert any(r.endswith(":repository/pytorch-inference") for r in found["Images"]["Resource"])


def test_a_change_of_code_or_settings_changes_no_policy(subject):
    """Else every commit would need new roles: folders named by a hash are wildcards."""
    text = json.dumps([derive_policy(subject("prod"), role) for role in ROLES])
    assert not re.search(r"/[0-9a-f]{16,}", text)


def test_policies_are_as_short_as_iam_takes_them(subject):
    """Without white space: 10,240 characters inline in all, 6,144 managed (IAM's quotas)."""
    for name in NAMES:
        policies = {r: derive_policy(subject(name), r) for r in names_of(subject(name))}
        sizes = {r: len(json.dumps(p, separators=(",", ":"))) for r, p in policies.items()}
        managed = [size for role, size in sizes.items() if role in ("plan", "ci", *SERVING)]
        assert max(managed) <= 6144 and max(sizes.values()) <= 10240, (name, sizes)


def test_every_change_of_a_derived_policy_is_told(subject):
    """One action, resource or condition less is a shortage (or an excess); more, an excess."""
    for role in names_of(subject("corners")):
        policy = derive_policy(subject("corners"), role)
        assert compare_policies(policy, json.loads(json.dumps(policy))) == []
        for index, statement in enumerate(policy["Statement"]):
            for field in ("Action", "Resource"):
                less = copy.deepcopy(policy)
                less["Statement"][index][field].pop()
                assert compare_policies(policy, less), (role, statement["Sid"], field)
            for operator in statement.get("Condition", {}):
                looser = copy.deepcopy(policy)
                del looser["Statement"][index]["Condition"][operator]
                assert compare_policies(policy, looser), (role, statement["Sid"], operator)


# definitions of others


ACCOUNT = "arn:aws:iam::123456789012:role"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/trainer@sha256:" + "0" * 64


TRANSFORM = {
    "ModelName": "theirs",
    "TransformInput": {"DataSource": {"S3DataSource": {"S3Uri": "s3://bkt/in"}}},
    "TransformOutput": {"S3OutputPath": "s3://bkt/scores"},
    "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
}
ARTIFACT = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}


def make_typed_step(kind: str, name: str, arguments: dict, **more) -> dict:
    return {"Name": name, "Type": kind, "Arguments": arguments, **more}


def trains(**fields) -> dict:
    return make_typed_step("Training", "Train", training("true") | fields)


def writes(uri: object, name: str = "P", **more) -> dict:
    return process_step(name, "true", outputs={"o": uri}, **more)


def reads(uri) -> dict:
    return {"ProcessingInputs": [{"InputName": "i", "S3Input": {"S3Uri": uri}}]}


def subject_of(*steps: dict, **more) -> Subject:
    return Subject(
        name="demo",
        region="us-east-1",
        role=f"{ACCOUNT}/pipe",
        document=pipeline(list(steps), **more),
        root=None,
        kms_key=None,
    )


def test_any_definition_with_conditions_lambdas_models_and_parameters():
    file = {"PropertyFileName": "Result", "OutputName": "o", "FilePath": "a/result.json"}
    evaluate = writes({"Get": "Parameters.Where"}, "Evaluate", PropertyFiles=[file])
    train = trains()
    train["Arguments"]["AlgorithmSpecification"]["TrainingImage"] = IMAGE
    container = {"Image": IMAGE, "ModelDataUrl": ARTIFACT}
    model = {"PrimaryContainer": container, "ExecutionRoleArn": f"{ACCOUNT}/serve"}
    function = "arn:aws:lambda:us-east-1:123456789012:function:notify"
    queue = "https://sqs.us-east-1.amazonaws.com/123456789012/asks"
    inner = [
        make_typed_step("Model", "Model", model),
        make_typed_step("Lambda", "Notify", {}, FunctionArn=function),
        make_typed_step("Callback", "Ask", {}, SqsQueueUrl=queue),
    ]
    test = {"Type": "Equals", "LeftValue": json_get("Evaluate", "Result", "x"), "RightValue": 1}
    where = {"Name": "Where", "Type": "String", "DefaultValue": "s3://theirs/out"}
    verdict = condition_step("If", [test], inner, [])
    mine = subject_of(train, evaluate, verdict, Parameters=[where])

    found = {sid: s["Resource"] for sid, s in by_sid(mine, "pipeline").items()}
    assert found["ReadResults"] == ["arn:aws:s3:::theirs/out/a/result.json"]
    assert found["Functions"] == [function]
    assert found["Queues"] == ["arn:aws:sqs:us-east-1:123456789012:asks"]
    assert found["PassJobRoles"] == [f"{ACCOUNT}/pipeline", f"{ACCOUNT}/serve"]
    assert found["Models"] == ["arn:aws:sagemaker:us-east-1:123456789012:model/pipelines-*"]
    with pytest.raises(DefinitionError, match=r"2 roles: choose one with --job-role"):
        derive_policy(mine, "job")
    jobs = by_sid(mine, "job", f"{ACCOUNT}/pipeline")
    assert jobs["Write"]["Resource"] == ["arn:aws:s3:::bkt/models/*", "arn:aws:s3:::theirs/out/*"]
    serve = by_sid(mine, "job", f"{ACCOUNT}/serve")
    assert serve["Read"]["Resource"] == ["arn:aws:s3:::bkt/models/*"]
    repository = "arn:aws:ecr:us-east-1:123456789012:repository/team/trainer"
    assert serve["Images"]["Resource"] == [repository]


def test_the_code_of_script_mode_is_read_from_where_a_hyperparameter_says():
    train = trains(HyperParameters={"sagemaker_submit_directory": '"s3://code/v1/a.tar.gz"'})
    assert "arn:aws:s3:::code/v1/a.tar.gz" in by_sid(subject_of(train), "job")["Read"]["Resource"]


def test_a_training_plan_is_used_with_its_machines():
    train = trains()
    assert "TrainingPlans" not in by_sid(subject_of(train), "pipeline")
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5-in-may"
    train["Arguments"]["ResourceConfig"]["TrainingPlanArn"] = plan
    machines = "arn:aws:sagemaker:us-east-1:123456789012:reserved-capacity/*"
    allowed = by_sid(subject_of(train), "pipeline")["TrainingPlans"]
    assert allowed["Action"] == ["sagemaker:CreateTrainingJob"]
    assert allowed["Resource"] == [machines, plan]


def test_a_group_of_another_account_is_registered_in_and_never_created():
    other = "arn:aws:sagemaker:us-east-1:111122223333:model-package-group/shared"
    subject = subject_of(make_typed_step("RegisterModel", "R", {"ModelPackageGroupName": other}))
    policy = by_sid(subject, "pipeline")
    packages = "arn:aws:sagemaker:us-east-1:111122223333:model-package/shared/*"
    assert policy["Register"]["Resource"] == policy["ModelPackages"]["Resource"] == [packages]
    assert "ModelPackageGroups" not in policy
    said = f"R: ModelPackageGroupName: {other} is another account's"
    assert any(said in gap for gap in list_gaps(subject, "pipeline"))


def test_jobs_may_decrypt_what_they_read_with_the_keys_of_its_buckets():
    keys = ("arn:aws:kms:us-east-1:111122223333:key/1", "alias/raw")
    reader = subject_of(process_step("P", "true", arguments=reads("s3://raw/in")))
    policy = by_sid(dataclasses.replace(reader, read_keys=keys), "job")
    assert policy["InputKeys"]["Action"] == ["kms:Decrypt"]
    assert policy["InputKeys"]["Resource"] == [keys[0]]
    by_alias = policy["InputKeysByAlias"]["Condition"]["ForAnyValue:StringEquals"]
    assert by_alias == {"kms:ResourceAliases": ["alias/raw"]}
    assert "DataKeys" not in policy
    blind = dataclasses.replace(subject_of(process_step("P", "true")), read_keys=keys)
    assert "InputKeys" not in by_sid(blind, "job")


LATER = {"Get": "Execution.StartDateTime"}
NO_BUCKET = r"step P: Outputs\[o\]: '\*' is not s3://bucket/key with a fixed bucket"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (
            make_typed_step("Job", "T", {}),
            r"step T: permissions of its type Job are not derived: the resou",
        ),
        (writes({"Get": "Parameters.W"}), r"P: Outputs\[o\]: parameter 'W' has no default value"),
        (writes(LATER), NO_BUCKET),
        (writes({"Get": "Steps.L.OutputParameters['to']"}), NO_BUCKET),
        (
            process_step("P", "true", arguments={"AppSpecification": {"ImageUri": "ubuntu"}}),
            r"step P: AppSpecification.ImageUri: 'ubuntu' is not an image in Amazon ECR",
        ),
        (
            process_step("P", "true", arguments={"RoleArn": LATER}),
            r"step P: its job's role is known only when the pipeline runs; allow iam:PassRole for ",
        ),
        (
            make_typed_step("RegisterModel", "R", {"ModelPackageGroupName": LATER}),
            r"step R: ModelPackageGroupName: is '\*'; a policy needs its name",
        ),
        (
            make_typed_step("Transform", "T", TRANSFORM),
            r"step T: its work is done with the role of the model theirs, which no step creates; "
            r"it reads s3://bkt/in, s3://bkt/in/\* and writes s3://bkt/scores/\*",
        ),
        (writes("s3://bkt/o"), r"MlflowConfig: what MLflow needs .* is not derived"),
    ],
)
def test_what_cannot_be_derived_is_a_gap_that_names_the_step(step, told):
    """What else can be derived is."""
    more = {"Parameters": [{"Name": "W", "Type": "String"}], "MlflowConfig": {"x": 1}}
    known = make_typed_step("Lambda", "L", {}, FunctionArn="arn:x")
    mine = subject_of(known, step, writes("s3://bkt/other", "Other"), **more)
    gaps = [gap for role in ("pipeline", "job") for gap in list_gaps(mine, role)]
    assert any(re.search(told, gap) for gap in gaps), gaps
    job = by_sid(mine, "job", f"{ACCOUNT}/pipeline")
    assert "arn:aws:s3:::bkt/other/*" in job["Write"]["Resource"]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (
            make_typed_step("Processing", "P", {}),
            r"not a pipeline definition \(KeyError\('AppSpecif",
        ),
        (
            make_typed_step("Condition", "C", json_get("No", "F", "x")),
            "demo: there is no step 'No'",
        ),
    ],
)
def test_what_is_not_a_definition_is_an_error_that_names_the_step(step, told):
    with pytest.raises(DefinitionError, match=told):
        for role in ("pipeline", "job"):
            derive_policy(subject_of(step), role)


DEFINITIONS = sorted(Path("tests/trainyard/validate/definitions").glob("*.json"))


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_every_definition_of_the_sdk_has_policies_of_real_actions(path: Path):
    """Whatever its step types are; what cannot be derived is a gap and refuses nothing else."""
    mine = read_subject(path, name="demo", region="us-east-1", role=f"{ACCOUNT}/pipe")
    asked = [("pipeline", None), *(("job", role) for role in list_job_roles(mine))]
    types = {step.type for step in mine.values.steps}
    for role, job_role in asked:
        assert_real(derive_policy(mine, role, job_role)["Statement"])
        assert bool(types & set(NOT_DERIVED)) <= bool(list_gaps(mine, role, job_role))


def test_a_folder_with_a_slash_at_its_end_is_read_where_the_job_writes():
    """SDK 2's default is s3://bucket/: a job writes bucket/JOB/output, and never bucket//JOB."""
    container = {"Image": IMAGE, "ModelDataUrl": ARTIFACT}
    containers = {"InferenceSpecification": {"Containers": [container]}}
    package = make_typed_step("RegisterModel", "R", {"ModelPackageGroupName": "g", **containers})
    after = process_step("Next", "true", arguments=reads(ARTIFACT))
    files = [{"PropertyFileName": "F", "OutputName": "o", "FilePath": "f.json"}]
    test = {"Type": "Equals", "RightValue": 1, "LeftValue": json_get("E", "F", "x")}
    verdict = condition_step("If", [test], [], [])
    for end in ("", "/"):
        train = trains(OutputDataConfig={"S3OutputPath": f"s3://bkt/p{end}"})
        report = writes(f"s3://bkt/e{end}", "E", PropertyFiles=files)
        mine = subject_of(train, package, after, report, verdict)
        every = [r for role in ("pipeline", "job") for s in derive_policy(mine, role)["Statement"]
                 for r in s["Resource"]]  # fmt: skip
        found = {
            r.removeprefix("arn:aws:s3:::") for r in every if r.startswith("arn:aws:s3:::bkt/")
        }
        assert found >= {"bkt/e/f.json", "bkt/p/*", "bkt/p/*/output/model.tar.gz"}
        assert not any("//" in resource for resource in found)


def test_tuning_transform_and_loops_are_derived_with_the_roles_that_they_name():
    train = training("true") | {"RoleArn": f"{ACCOUNT}/tuning"}
    jobs = {"HyperParameterTuningJobConfig": {}, "TrainingJobDefinition": train}
    best = {"Get": "Steps.Tune.BestTrainingJob.TrainingJobName"}
    artifact = {"Std:Join": {"On": "/", "Values": ["s3://bkt/models", best, "model.tar.gz"]}}
    container = {"Image": IMAGE, "ModelDataUrl": artifact}
    made = {"ExecutionRoleArn": f"{ACCOUNT}/serve", "PrimaryContainer": container}
    scores = TRANSFORM | {"ModelName": {"Get": "Steps.Made.ModelName"}}
    part = {"Std:Join": {"On": "/", "Values": ["s3://bkt/parts", {"Get": "ForEach.CurrentItem"}]}}
    each = process_step("Each", "true", arguments=reads(part))
    loop = {"IterableItems": ["a", "b"], "MaxConcurrency": 1, "ForEachBody": [each]}
    mine = subject_of(
        make_typed_step("Tuning", "Tune", jobs),
        make_typed_step("Model", "Made", made),
        make_typed_step("Transform", "T", scores),
        make_typed_step("ForEach", "Loop", loop),
    )

    def find_role_resources(role: str) -> dict[str, list[str]]:
        return {sid: s["Resource"] for sid, s in by_sid(mine, "job", role).items()}

    assert [list_gaps(mine, "job", role) for role in list_job_roles(mine)] == [[], [], []]
    assert find_role_resources(f"{ACCOUNT}/tuning")["Write"] == ["arn:aws:s3:::bkt/models/*"]
    serve = find_role_resources(f"{ACCOUNT}/serve")
    assert serve["Write"] == ["arn:aws:s3:::bkt/scores/*"]
    assert {"arn:aws:s3:::bkt/in", "arn:aws:s3:::bkt/models/*"} <= set(serve["Read"])
    assert "arn:aws:s3:::bkt/parts/*" in find_role_resources(f"{ACCOUNT}/pipeline")["Read"]
    policy = by_sid(mine, "pipeline")
    passed = {f"{ACCOUNT}/{name}" for name in ("pipeline", "serve", "tuning")}
    assert set(policy["PassJobRoles"]["Resource"]) == passed
    allowed = {action for statement in policy.values() for action in statement["Action"]}
    for api in ("HyperParameterTuningJob", "TransformJob", "ProcessingJob"):
        assert {f"sagemaker:{verb}{api}" for verb in ("Create", "Describe", "Stop")} <= allowed
    assert "sagemaker:CreateTrainingJob" not in allowed  # the tuning job makes those itself


def test_every_type_is_covered_or_a_gap_with_a_reason():
    assert sorted([*COLLECTORS, *BY_PIPELINE, *NOT_DERIVED]) == sorted(STEP_TYPES)


def paths(value, path=()):
    """Every place in a JSON document."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield (*path, key)
        yield from paths(value[key], (*path, key))


@pytest.mark.sweep
def test_a_damaged_definition_is_an_error_and_never_a_traceback(subject):
    whole = subject("laptop")
    told = 0
    for *path, last in paths(whole.document):
        damaged = copy.deepcopy(whole.document)
        holder = damaged
        for key in path:
            holder = holder[key]
        del holder[last]
        try:
            for role in ROLES:
                derive_policy(dataclasses.replace(whole, document=damaged), role)
        except DefinitionError:
            told += 1
    assert told > 50
