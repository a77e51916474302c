"""Pipelines as resources: verbatim definitions, versions, tags, refusals."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import ROLE, Cloud, fail_step, pipeline, process_step


def text(message: str = "x") -> str:
    """Return a definition with odd spacing and letters, to be kept as it is."""
    return json.dumps(pipeline([fail_step("F", message)]), indent=3, ensure_ascii=False) + " \n"


def test_the_definition_comes_back_byte_for_byte(aws: Cloud) -> None:
    given = text("größer ✓")
    aws.sm.create_pipeline(PipelineName="exact", PipelineDefinition=given, RoleArn=ROLE)
    got = aws.sm.describe_pipeline(PipelineName="exact")
    assert got["PipelineDefinition"] == given
    assert (got["PipelineStatus"], got["RoleArn"]) == ("Active", ROLE)
    by_arn = aws.sm.describe_pipeline(PipelineName=got["PipelineArn"])
    assert by_arn["PipelineDefinition"] == given
    with pytest.raises(ClientError, match="already exists"):
        aws.sm.create_pipeline(PipelineName="exact", PipelineDefinition=given, RoleArn=ROLE)


def test_a_definition_from_s3(aws: Cloud) -> None:
    given = text("from S3")
    aws.put("definitions/p.json", given)
    location = {"Bucket": "bkt", "ObjectKey": "definitions/p.json"}
    aws.sm.create_pipeline(PipelineName="s3", PipelineDefinitionS3Location=location, RoleArn=ROLE)
    assert aws.sm.describe_pipeline(PipelineName="s3")["PipelineDefinition"] == given
    aws.s3.create_bucket(Bucket="versioned")
    status = {"Status": "Enabled"}
    aws.s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration=status)
    at = {"Bucket": "versioned", "Key": "p.json"}
    first = aws.s3.put_object(**at, Body=given.encode())["VersionId"]
    aws.s3.put_object(**at, Body=text("newer").encode())
    pinned = {"Bucket": "versioned", "ObjectKey": "p.json", "VersionId": first}
    aws.sm.update_pipeline(PipelineName="s3", PipelineDefinitionS3Location=pinned)
    assert aws.sm.describe_pipeline(PipelineName="s3")["PipelineDefinition"] == given


def test_an_update_makes_a_version_and_keeps_the_old_one(aws: Cloud) -> None:
    aws.sm.create_pipeline(PipelineName="many", PipelineDefinition=text("1"), RoleArn=ROLE)
    for number in (2, 3):
        answer = aws.sm.update_pipeline(PipelineName="many", PipelineDefinition=text(str(number)))
        assert answer["PipelineVersionId"] == number
    assert aws.sm.describe_pipeline(PipelineName="many")["PipelineDefinition"] == text("3")
    old = aws.sm.describe_pipeline(PipelineName="many", PipelineVersionId=1)
    assert old["PipelineDefinition"] == text("1")
    versions = aws.sm.list_pipeline_versions(PipelineName="many")["PipelineVersionSummaries"]
    assert [v["PipelineVersionId"] for v in versions] == [3, 2, 1]
    aws.sm.update_pipeline_version(
        PipelineArn=old["PipelineArn"], PipelineVersionId=1, PipelineVersionDisplayName="first"
    )
    named = aws.sm.describe_pipeline(PipelineName="many", PipelineVersionId=1)
    assert named["PipelineVersionDisplayName"] == "first"


def test_list_tag_and_delete(aws: Cloud) -> None:
    tags = [{"Key": "team", "Value": "nlp"}]
    for name in ("list-a", "list-b"):
        arn = aws.sm.create_pipeline(
            PipelineName=name, PipelineDefinition=text(), RoleArn=ROLE, Tags=tags
        )["PipelineArn"]
    aws.sm.add_tags(ResourceArn=arn, Tags=[{"Key": "stage", "Value": "dev"}])
    aws.sm.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert aws.sm.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "stage", "Value": "dev"}]
    aws.sm.delete_pipeline(PipelineName=name)
    aws.sm.create_pipeline(PipelineName=name, PipelineDefinition=text(), RoleArn=ROLE)
    assert aws.sm.list_tags(ResourceArn=arn)["Tags"] == []
    found = aws.sm.list_pipelines(PipelineNamePrefix="list", SortBy="Name", SortOrder="Ascending")
    assert [p["PipelineName"] for p in found["PipelineSummaries"]] == ["list-a", "list-b"]
    aws.sm.delete_pipeline(PipelineName="list-b")
    with pytest.raises(ClientError, match="ResourceNotFound"):
        aws.sm.describe_pipeline(PipelineName="list-b")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([fail_step("F", {"Get": "Parameters.x"})], "Step 'F'.*no parameter 'x'"),
        ([process_step("P", "true", CacheConfig={"ExpireAfter": "soon"})],
         "step 'P': ExpireAfter 'soon'"),
        (None, "not a JSON object"),
    ],
)  # fmt: skip
def test_a_bad_definition_is_refused_and_leaves_nothing(aws: Cloud, steps, message: str) -> None:
    definition = json.dumps(pipeline(steps)) if steps else "{"
    with pytest.raises(ClientError, match=message) as caught:
        aws.sm.create_pipeline(PipelineName="bad", PipelineDefinition=definition, RoleArn=ROLE)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    with pytest.raises(ClientError, match="does not exist"):
        aws.sm.describe_pipeline(PipelineName="bad")


def test_members_that_nobody_heeds_are_refused_by_name(aws: Cloud) -> None:
    given: dict = {"PipelineName": "heeded", "PipelineDefinition": text(), "RoleArn": ROLE}
    with pytest.raises(ClientError, match="PipelineVersionAliases"):
        aws.sm.create_pipeline(**given, PipelineVersionAliases=["x"])
    aws.sm.create_pipeline(**given)
    for member in ("PipelineVersionAlias", "MlflowExperimentName"):
        with pytest.raises(ClientError, match=member):
            aws.sm.start_pipeline_execution(PipelineName="heeded", **{member: "x"})
    assert not aws.sm.list_pipeline_executions(PipelineName="heeded")["PipelineExecutionSummaries"]


def test_an_execution_has_the_role_that_it_was_started_with(aws: Cloud) -> None:
    other = ROLE + "-of-the-execution"
    aws.sm.create_pipeline(PipelineName="roles", PipelineDefinition=text(), RoleArn=ROLE)
    for given, role in (({}, ROLE), ({"RoleArn": other}, other)):
        started = aws.sm.start_pipeline_execution(PipelineName="roles", **given)
        arn = started["PipelineExecutionArn"]
        assert aws.sm.describe_pipeline_execution(PipelineExecutionArn=arn)["RoleArn"] == role
