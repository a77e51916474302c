"""A stack's pipeline and model package group are created, updated and deleted in SageMaker."""

import json

import boto3
import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.long


def body(message: str) -> str:
    step = {"Name": "Stop", "Type": "Fail", "Arguments": {"ErrorMessage": message}}
    return json.dumps({"Version": "2020-12-01", "Steps": [step]})


def template(definition: dict, name: str = "stacked", **more) -> str:
    pipeline = {"PipelineName": name, "PipelineDefinition": definition, **more}
    pipeline["RoleArn"] = {"Fn::GetAtt": ["Role", "Arn"]}
    trust = {"Version": "2012-10-17", "Statement": []}
    role = {"RoleName": f"role-of-{name}", "AssumeRolePolicyDocument": trust}
    group = {"ModelPackageGroupName": f"group-of-{name}"}
    resources = {
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Pipeline": {"Type": "AWS::SageMaker::Pipeline", "Properties": pipeline},
        "Group": {"Type": "AWS::SageMaker::ModelPackageGroup", "Properties": group},
    }
    values = {
        "Name": {"Ref": "Pipeline"},
        "Group": {"Fn::GetAtt": "Group.ModelPackageGroupArn".split(".")},
    }
    outputs = {key: {"Value": value} for key, value in values.items()}
    return json.dumps({"Resources": resources, "Outputs": outputs})


@pytest.fixture
def aws(emulator, monkeypatch):
    for name, value in emulator.env.items():
        monkeypatch.setenv(name, value)
    return boto3.client("cloudformation"), boto3.client("sagemaker")


def outputs(stacks, name: str) -> dict[str, str]:
    [stack] = stacks.describe_stacks(StackName=name)["Stacks"]
    assert stack["StackStatus"].endswith("_COMPLETE")
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def test_a_pipeline_is_created_updated_and_deleted_with_its_stack(aws):
    stacks, sagemaker = aws
    tags = [{"Key": "team", "Value": "a"}, {"Key": "stage", "Value": "dev"}]
    limits = {"MaxParallelExecutionSteps": "3"}
    first = template({"PipelineDefinitionBody": body("one")}, Tags=tags,
                     ParallelismConfiguration=limits)  # fmt: skip
    stacks.create_stack(StackName="s", TemplateBody=first)
    found = outputs(stacks, "s")
    described = sagemaker.describe_pipeline(PipelineName="stacked")
    assert found["Name"] == "stacked" and found["Group"].endswith("/group-of-stacked")
    assert described["PipelineDefinition"] == body("one")
    assert described["RoleArn"].endswith("role/role-of-stacked")
    assert described["ParallelismConfiguration"] == {"MaxParallelExecutionSteps": 3}
    started = sagemaker.start_pipeline_execution(PipelineName="stacked")

    second = template({"PipelineDefinitionBody": body("two")}, Tags=tags[:1],
                      PipelineDescription="changed")  # fmt: skip
    stacks.update_stack(StackName="s", TemplateBody=second)
    described = sagemaker.describe_pipeline(PipelineName="stacked")
    assert described["PipelineDefinition"] == body("two")
    assert described["PipelineDescription"] == "changed"
    assert sagemaker.list_tags(ResourceArn=described["PipelineArn"])["Tags"] == tags[:1]
    ran = sagemaker.describe_pipeline_definition_for_execution(
        PipelineExecutionArn=started["PipelineExecutionArn"]
    )
    assert ran["PipelineDefinition"] == body("one")

    stacks.delete_stack(StackName="s")
    assert sagemaker.list_pipelines()["PipelineSummaries"] == []
    assert sagemaker.list_model_package_groups()["ModelPackageGroupSummaryList"] == []


def test_a_change_set_reads_template_and_definition_from_s3(aws):
    stacks, sagemaker = aws
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="deploys")
    s3.put_object(Bucket="deploys", Key="code/definition.json", Body=body("from S3").encode())
    place = {"Bucket": "deploys", "Key": "code/definition.json"}
    text = template({"PipelineDefinitionS3Location": place}, "changed")
    s3.put_object(Bucket="deploys", Key="t/1.template", Body=text.encode())
    url = "https://deploys.s3.us-east-1.amazonaws.com/t/1.template"
    wanted = "https://s3.us-east-1.amazonaws.com/deploys/t/1.template"
    assert stacks.get_template_summary(TemplateURL=wanted)["ResourceTypes"]
    stacks.create_change_set(
        StackName="c", ChangeSetName="first", ChangeSetType="CREATE", TemplateURL=url
    )
    assert sagemaker.list_pipelines(PipelineNamePrefix="changed")["PipelineSummaries"] == []
    stacks.execute_change_set(StackName="c", ChangeSetName="first")
    described = sagemaker.describe_pipeline(PipelineName="changed")
    assert described["PipelineDefinition"] == body("from S3")
    stacks.delete_change_set(StackName="c", ChangeSetName="first")
    with pytest.raises(stacks.exceptions.ChangeSetNotFoundException):  # as CDK expects it
        stacks.describe_change_set(StackName="c", ChangeSetName="first")
    stacks.delete_stack(StackName="c")


def change_resource_properties(text: str, logical: str, **properties) -> str:
    document = json.loads(text)
    document["Resources"][logical]["Properties"] |= properties
    return json.dumps(document)


def test_a_change_set_changes_a_roles_policies_and_trust_and_a_groups_tags(aws):
    """As ``aws cloudformation deploy`` and CDK update a stack."""
    stacks, sagemaker = aws
    iam = boto3.client("iam")
    first = template({"PipelineDefinitionBody": body("one")}, "again")
    stacks.create_stack(StackName="a", TemplateBody=first)
    allow = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [allow]}
    trust = {"Version": "2012-10-17", "Statement": [allow | {"Action": "sts:AssumeRole"}]}
    second = change_resource_properties(first, "Role", AssumeRolePolicyDocument=trust,
                     Policies=[{"PolicyName": "p", "PolicyDocument": policy}])  # fmt: skip
    second = change_resource_properties(second, "Group", Tags=[{"Key": "team", "Value": "a"}])
    asked = {"StackName": "a", "ChangeSetName": "next", "ChangeSetType": "UPDATE"}
    made = stacks.create_change_set(**asked, TemplateBody=second)
    stacks.execute_change_set(ChangeSetName=made["Id"])
    role = {"RoleName": "role-of-again"}
    assert iam.get_role_policy(**role, PolicyName="p")["PolicyDocument"] == policy
    assert iam.get_role(**role)["Role"]["AssumeRolePolicyDocument"] == trust
    group = outputs(stacks, "a")["Group"]
    assert sagemaker.list_tags(ResourceArn=group)["Tags"] == [{"Key": "team", "Value": "a"}]
    third = change_resource_properties(second, "Group", ModelPackageGroupDescription="another")
    with pytest.raises(ClientError, match="ModelPackageGroupDescription changes, so"):
        stacks.update_stack(StackName="a", TemplateBody=third)
    stacks.delete_stack(StackName="a")
    groups = sagemaker.list_model_package_groups()["ModelPackageGroupSummaryList"]
    assert "group-of-again" not in {each["ModelPackageGroupName"] for each in groups}


def test_what_sagemaker_refuses_ends_the_request_with_its_reason(aws):
    stacks, sagemaker = aws
    wrong = template({"PipelineDefinitionBody": json.dumps({"Version": "2020-12-01"})}, "wrong")
    with pytest.raises(ClientError, match="wrong: ValidationException: .*[Ss]teps"):
        stacks.create_stack(StackName="w", TemplateBody=wrong)
    roles = boto3.client("iam").list_roles()["Roles"]
    assert "role-of-wrong" not in {role["RoleName"] for role in roles}
    assert stacks.list_stacks(StackStatusFilter=["CREATE_IN_PROGRESS"])["StackSummaries"] == []
    misspelt = template({"PipelineDefinitionBody": body("x")}, "wrong", RoleARN="x")
    with pytest.raises(ClientError, match="wrong: extraneous key RoleARN is not permitted"):
        stacks.create_stack(StackName="m", TemplateBody=misspelt)
    with pytest.raises(ClientError, match="TemplateURL: .*"):
        stacks.create_stack(StackName="u", TemplateURL="https://no.s3.amazonaws.com/t.json")
    assert sagemaker.list_pipelines()["PipelineSummaries"] == []
