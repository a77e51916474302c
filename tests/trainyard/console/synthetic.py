"""A synthetic AWS from botocore's shapes: every operation answers with all possible members.

A member can be left out. The members that pages read are recorded, so that only these are left out
in turn: other members cannot matter.
"""

import io
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody

Path = tuple[str, ...]
"""Operation, then names of members; ``[]`` for a list's item or a map's value."""

BARE: Path = ("*",)
"""Path that means that all optional members are missing."""

WHEN = datetime(2026, 11, 22, 10, tzinfo=UTC)
TOKENS = ("token", "marker", "istruncated")
"""Parts of names of members that announce more pages: here there are none."""

DEFINITION = json.dumps(
    {
        "Version": "2020-12-01",
        "Parameters": [{"Name": "Steps", "Type": "Integer", "DefaultValue": 1}],
        "Steps": [{"Name": "S", "Type": "Training", "Arguments": {"RoleArn": "r"}}],
    }
)
_ARN = "arn:aws:sagemaker:us-east-1:123456789012:"
KNOWN = {
    "PipelineName": "p",
    "PipelineArn": f"{_ARN}pipeline/p",
    "PipelineExecutionArn": f"{_ARN}pipeline/p/execution/abcdefghijkl",
    "StepName": "S",
    "PipelineDefinition": DEFINITION,
    "ModelPackageGroupName": "g",
    "ModelPackageArn": f"{_ARN}model-package/g/1",
    "MetricName": "train:loss",
    "logStreamName": "j/algo-1-1",
    "message": "step=1 train:loss=0.5",
    "Id": "m0",  # of a question to CloudWatch, which its answer repeats
    "nextForwardToken": "f/1",
    "nextBackwardToken": "b/1",
    "Key": "k/manifest.json",
    "CacheHitResult.SourcePipelineExecutionArn": f"{_ARN}pipeline/p/execution/abcdefghijkl",
    **{
        f"{kind}.Arn": f"{_ARN}{kind_of}/j"
        for kind, kind_of in (
            ("TrainingJob", "training-job"),
            ("ProcessingJob", "processing-job"),
            ("TransformJob", "transform-job"),
            ("TuningJob", "hyper-parameter-tuning-job"),
            ("RegisterModel", "model-package/g"),
        )
    },
}
"""Member, or parent's and member's name → its text."""


SESSION = boto3.Session("key", "secret", region_name="us-east-1")
CLIENTS: dict[str, Any] = {}


class Answer(dict):
    """A structure that records which of its optional members are read."""

    def __init__(self, path: Path, optional: Collection[str], note: Callable[[Path], None]) -> None:
        super().__init__()
        self._path, self._optional, self._note = path, optional, note

    def _note_read(self, name: Any) -> None:
        if name in self._optional:
            self._note((*self._path, str(name)))

    def __getitem__(self, name: Any) -> Any:
        self._note_read(name)
        return super().__getitem__(name)

    def get(self, name: Any, default: Any = None) -> Any:
        self._note_read(name)
        return super().get(name, default)


class Service:
    """All services of AWS. ``status``: status of each execution, step and job."""

    def __init__(self, status: str = "Failed", absent: Path = ()) -> None:
        self.status, self.absent = status, absent
        self.read: set[Path] = set()

    def client(self, service: str, *_: Any, **__: Any) -> Any:
        """Return a client in place of ``boto3.client``; each is created once, for the present
        service.
        """
        if service not in CLIENTS:
            CLIENTS[service] = SESSION.client(service)
        events = CLIENTS[service].meta.events
        events.unregister("before-call.*", unique_id="synthetic")
        events.register("before-call.*", self._answer, unique_id="synthetic")
        return CLIENTS[service]

    def _answer(self, model: Any, **_: Any) -> tuple[Any, Any]:
        path = (model.name,)
        shape = model.output_shape
        answer = self._make_value(shape, path, ()) if shape else {}
        return SimpleNamespace(status_code=200, headers={}), answer

    def _make_value(self, shape: Any, path: Path, inside: tuple[str, ...]) -> Any:
        if shape.name in inside:  # a shape that holds itself
            return None
        within = (*inside, shape.name)
        if shape.type_name == "structure":
            return self._structure(shape, path, within)
        if shape.type_name == "list":
            return [self._make_value(shape.member, (*path, "[]"), within)]
        if shape.type_name == "map":
            return {"key": self._make_value(shape.value, (*path, "[]"), within)}
        return self._scalar(shape, path)

    def _structure(self, shape: Any, path: Path, within: tuple[str, ...]) -> Answer:
        body = shape.serialization.get("payload")  # HTTP has always one
        optional = shape.members.keys() - {*shape.required_members, body}
        answer = Answer(path, optional, self.read.add)
        for name, member in shape.members.items():
            here = (*path, name)
            is_more = name not in KNOWN and name.lower().endswith(TOKENS)
            is_absent = here == self.absent or (self.absent == BARE and name in optional)
            if is_absent or is_more:
                continue
            if (value := self._make_value(member, here, within)) is not None:
                answer[name] = value
        return answer

    def _scalar(self, shape: Any, path: Path) -> Any:
        if shape.type_name == "blob":
            return StreamingBody(io.BytesIO(b'{"a": 1}'), 8)
        if shape.type_name == "timestamp":
            return WHEN
        if shape.type_name in ("integer", "long"):
            return int(WHEN.timestamp() * 1000) if "imestamp" in path[-1] else 1
        if shape.type_name in ("float", "double"):
            return 0.5
        if shape.type_name == "boolean":
            return False
        return self._text(shape, path)

    def _text(self, shape: Any, path: Path) -> str:
        named = [name for name in path if name != "[]"]
        for key in (".".join(named[-2:]), named[-1]):
            if key in KNOWN:
                return KNOWN[key]
        if choices := getattr(shape, "enum", None):
            return self.status if self.status in choices else str(choices[0])
        if named[-1].endswith(("Uri", "Url", "URI", "Path")):
            return "s3://bkt/k/manifest.json"
        return f"{_ARN}thing/x" if named[-1].endswith(("Arn", "ARN")) else "text"


@contextmanager
def answering(service: Service) -> Iterator[Service]:
    """Let every client that is created inside the block belong to ``service``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boto3, "client", service.client)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        yield service
