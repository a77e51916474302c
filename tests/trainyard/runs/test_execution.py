"""What is read of one execution: the logs of its steps' jobs."""

from types import SimpleNamespace
from typing import Any

from tests.trainyard.console.synthetic import SESSION
from trainyard.console.log_lines import Stream, choose_stream
from trainyard.runs.execution import Execution, Step

ARN = "arn:aws:sagemaker:us-east-1:123456789012:pipeline/p/execution/abcdefghijkl"
STREAMS = ("j/algo-1-1795398686", "j/algo-1-1795398686/data-log", "j/algo-2-1795398686")


def answer_log_call(model: Any, params: Any, **_: Any) -> tuple[Any, Any]:
    """CloudWatch Logs, which has one line in each stream: the stream's name."""
    if model.name == "DescribeLogStreams":
        answer: Any = {"logStreams": [{"logStreamName": name} for name in STREAMS]}
    else:
        [name] = [each for each in STREAMS if f'"{each}"' in params["body"].decode()]
        answer = {"events": [{"timestamp": 1, "message": name}]}
    return SimpleNamespace(status_code=200, headers={}), answer


def client(service: str, _: str | None) -> Any:
    made = SESSION.client(service)
    made.meta.events.register("before-call.*", answer_log_call)
    return made


def test_each_log_of_a_transform_has_a_host_that_leads_to_it():
    step = Step(
        name="Score", title="Score", status="Failed", started=None, ended=None, reason="",
        cached=False, metadata={"TransformJob": {"Arn": "arn:aws:sagemaker:::transform-job/j"}},
    )  # fmt: skip
    found = Execution(ARN, None, client).read_last_events(step, 10)
    assert list(found) == ["algo-1", "algo-1-1795398686/data-log", "algo-2"]
    streams = [Stream("/aws/sagemaker/TransformJobs", name, 0) for name in STREAMS]
    for host, [event] in found.items():
        stream = choose_stream(streams, host, "j")
        assert stream and stream.name == event["message"]
