"""What the tests of the emulator's edge put in the place of pipelines and jobs, which have their
own tests."""

import boto3
from botocore.config import Config

from trainyard.emulator.api import ApiError
from trainyard.emulator.server import Endpoint


class NoPipelines:
    """In the place of trainyard.emulator.sagemaker.SageMaker where a test starts no pipeline."""

    OPERATIONS = frozenset({"ListPipelines", "DescribePipeline"})

    def __init__(self, state, objects, logs, forward) -> None:
        self.forward, self.closed = forward, False

    def handle(self, operation: str, request: dict) -> dict:
        if operation == "DescribePipeline":
            raise ApiError("ResourceNotFound", f"Pipeline {request['PipelineName']} is not there.")
        return {"PipelineSummaries": [{"PipelineName": "stand-in", "CreationTime": 1.5}]}

    def close(self) -> None:
        self.closed = True


def make_client(endpoint: Endpoint, service: str):
    """A boto3 client without retries: an answer that botocore would retry must fail the test."""
    return boto3.client(
        service,
        endpoint_url=endpoint.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )
