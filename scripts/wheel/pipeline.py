"""A user's pipeline, with boto3 alone: a script counts the words of a text in S3."""

import json
from pathlib import Path

import boto3

ROLE = "arn:aws:iam::123456789012:role/service-role/AmazonSageMaker-ExecutionRole"
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
BUCKET = "somebodys-data"
FOLDER = "/opt/ml/processing"
COUNT = f"""
import json, pathlib
words = pathlib.Path("{FOLDER}/text/words.txt").read_text().split()
pathlib.Path("{FOLDER}/counts/counts.json").write_text(json.dumps({{"words": len(words)}}))
"""


def make_step_input(name: str) -> dict:
    """Return the processing input ``name``, from the S3 prefix of the same name."""
    s3 = {"S3Uri": f"s3://{BUCKET}/{name}", "LocalPath": f"{FOLDER}/{name}"}
    return {"InputName": name, "S3Input": s3 | {"S3DataType": "S3Prefix", "S3InputMode": "File"}}


COUNTED = {
    "S3Uri": f"s3://{BUCKET}/counts",
    "LocalPath": f"{FOLDER}/counts",
    "S3UploadMode": "EndOfJob",
}
DEFINITION = {
    "Version": "2020-12-01",
    "Parameters": [{"Name": "Machine", "Type": "String", "DefaultValue": "ml.m5.large"}],
    "Steps": [
        {
            "Name": "Count",
            "Type": "Processing",
            "Arguments": {
                "RoleArn": ROLE,
                "AppSpecification": {
                    "ImageUri": IMAGE,
                    "ContainerEntrypoint": ["python3", f"{FOLDER}/code/count.py"],
                },
                "ProcessingResources": {
                    "ClusterConfig": {
                        "InstanceType": {"Get": "Parameters.Machine"},
                        "InstanceCount": 1,
                        "VolumeSizeInGB": 5,
                    }
                },
                "ProcessingInputs": [make_step_input("code"), make_step_input("text")],
                "ProcessingOutputConfig": {
                    "Outputs": [{"OutputName": "counts", "S3Output": COUNTED}]
                },
                "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            },
        }
    ],
}


def start_pipeline() -> str:
    """Upload the files, create and start the pipeline; return the execution's ARN."""
    s3, sagemaker = boto3.client("s3"), boto3.client("sagemaker")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="code/count.py", Body=COUNT)
    s3.put_object(Bucket=BUCKET, Key="text/words.txt", Body="one two three")
    sagemaker.create_pipeline(
        PipelineName="count",
        PipelineDefinition=json.dumps(DEFINITION),
        RoleArn=ROLE,
        ClientRequestToken="0" * 32,
    )
    return sagemaker.start_pipeline_execution(PipelineName="count")["PipelineExecutionArn"]


if __name__ == "__main__":
    Path("definition.json").write_text(json.dumps(DEFINITION))
    print(start_pipeline())
