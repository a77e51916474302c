"""An emulator to run definitions on: its clients, its functions, who answers callbacks."""

import contextlib
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping

from botocore.exceptions import BotoCoreError, ClientError

from benchmarks.measured_process import create_boto_client

ROLE = "arn:aws:iam::123456789012:role/pipeline"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"
ENDED = ("Succeeded", "Failed", "Stopped", "CompletedWithFailures")


class Service:
    """boto3's clients of one emulator; ``told`` are the variables that it gives to a shell."""

    def __init__(self, told: Mapping[str, str]) -> None:
        names = ("sagemaker", "s3", "lambda", "sqs")
        clients = (create_boto_client(told, name, max_pool_connections=40) for name in names)
        self.sagemaker, self.s3, self.functions, self.queues = clients

    def queue(self) -> str:
        return self.queues.create_queue(QueueName="random")["QueueUrl"]

    def function(self, name: str, source: str) -> None:
        """Make a function of ``answer`` in the source."""
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("code.py", source)
        asked = {"Runtime": "python3.11", "Handler": "code.answer", "Role": ROLE, "Timeout": 60}
        code = {"ZipFile": data.getvalue()}
        self.functions.create_function(FunctionName=name, Code=code, **asked)

    def create(self, name: str, definition: dict, queue: str) -> dict:
        """Make the pipeline; return its definition with the queue's URL in it."""
        text = json.dumps(definition).replace('"QUEUE"', json.dumps(queue))
        self.sagemaker.create_pipeline(
            PipelineName=name, PipelineDefinition=text, RoleArn=ROLE, ClientRequestToken="t" * 32
        )
        return json.loads(text)

    def start(self, name: str) -> str:
        answer = self.sagemaker.start_pipeline_execution(PipelineName=name)
        return answer["PipelineExecutionArn"]

    def wait_for_execution(self, arn: str, seconds: float = 240) -> dict:
        """DescribePipelineExecution's answer at the end. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self.sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
            if answer["PipelineExecutionStatus"] in ENDED:
                return answer
            time.sleep(0.05)
        raise TimeoutError(f"{arn} still runs after {seconds:g} s")

    def steps(self, arn: str) -> list[dict]:
        pages = self.sagemaker.get_paginator("list_pipeline_execution_steps").paginate(
            PipelineExecutionArn=arn, SortOrder="Ascending"
        )
        return [step for page in pages for step in page["PipelineExecutionSteps"]]

    @contextlib.contextmanager
    def answering(self, queue: str) -> Iterator[dict[str, bool]]:
        """Context in which callbacks are answered as their arguments ask; token → whether it
        succeeded, of those whose answer was acknowledged.
        """
        stop, answered = threading.Event(), dict[str, bool]()

        def answer() -> None:
            while not stop.is_set():
                try:
                    asked = {"QueueUrl": queue, "WaitTimeSeconds": 1, "MaxNumberOfMessages": 10}
                    for message in self.queues.receive_message(**asked).get("Messages", []):
                        self._answer(queue, message, answered)
                except (ClientError, BotoCoreError):  # it is being killed
                    stop.wait(0.05)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield answered
        finally:
            stop.set()
            thread.join()

    def _answer(self, queue: str, message: dict, answered: dict[str, bool]) -> None:
        told = json.loads(message["Body"])
        token, asked = told["token"], told["arguments"]
        well = asked["answer"] == "succeed"
        if told["status"] == "Executing" and well:
            outputs = [{"Name": "y", "Value": str(asked["x"] + 1)}]
            send = self.sagemaker.send_pipeline_execution_step_success
            send(CallbackToken=token, OutputParameters=outputs)
        elif told["status"] == "Executing":
            send = self.sagemaker.send_pipeline_execution_step_failure
            send(CallbackToken=token, FailureReason=f"no to {asked['x']}")
        answered[token] = well
        self.queues.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def prepare(service: Service) -> str:
    """Make the bucket, the function and the queue that definitions name; return the queue's URL."""
    from tests.trainyard.emulator.definitions.generate import SOURCE

    service.s3.create_bucket(Bucket="random")
    service.function("random", SOURCE)
    return service.queue()
