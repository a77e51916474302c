"""Test of the user's pipeline. Its name matches no pattern of pytest: pass the file to pytest."""

import json

import boto3
import pipeline

from trainyard.emulator.server import Endpoint


def test_it_counts(sagemaker_endpoint: Endpoint) -> None:
    ended = sagemaker_endpoint.wait(pipeline.start_pipeline())
    assert ended["PipelineExecutionStatus"] == "Succeeded", ended
    got = boto3.client("s3").get_object(Bucket=pipeline.BUCKET, Key="counts/counts.json")
    assert json.loads(got["Body"].read()) == {"words": 3}
