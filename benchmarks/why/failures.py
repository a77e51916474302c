"""Steps that really fail on the emulator, each with the cause that is right.

A step's script is what somebody's job could be: nothing of it knows of `why`. Scripts of a rank run
under torchrun with gloo, three of them in the one job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BUCKET = "why"
SCARCE = "ml.p5.48xlarge"
"""The instance type that the emulator has none of."""

ROLE = "arn:aws:iam::123456789012:role/pipeline"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:breaks"
SOURCE = """def answer(event, context):
    return {"share": 1 / event["parts"]}
"""
"""The function of the failing Lambda step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A pipeline of which the step ``Breaks`` fails."""

    kind: str
    """Which of the causes that people ask for it stands for."""

    right: tuple[str, ...]
    says: str = ""
    steps: tuple[Mapping[str, Any], ...] = field(default=())


def _training(script: str, **more: Any) -> dict[str, Any]:
    """A training step; ``more`` replaces members of CreateTrainingJob's request."""
    arguments = {
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash", "-c"],
            "ContainerArguments": [script],
        },
        "ResourceConfig": {
            "InstanceType": more.pop("instance", "ml.m5.large"),
            "InstanceCount": more.pop("machines", 1),
            "VolumeSizeInGB": 1,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": more.pop("seconds", 100)},
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models"},
    }
    return {"Name": "Breaks", "Type": "Training", "Arguments": arguments | more}


def _python(code: str, **more: Any) -> dict[str, Any]:
    return _training(f"cat > t.py <<'PY'\n{code}\nPY\npython t.py", **more)


def _ranks(code: str, count: int = 3, variable: str = "") -> dict[str, Any]:
    """Ranks over gloo on one machine; ``rank`` is theirs, ``x`` a tensor."""
    head = (
        "import datetime, os, sys, time, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "group = dist.new_group(timeout=datetime.timedelta(seconds=4))\n"
        "rank, x = dist.get_rank(), torch.ones(3)\n"
    )
    started = f"{variable} torchrun --standalone --nproc_per_node={count} t.py"
    return _training(f"cat > t.py <<'PY'\n{head}{code}\nPY\n{started}")


def _channel(uri: str) -> list[dict[str, Any]]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri}
    return [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]


def _writes(name: str, text: str) -> dict[str, Any]:
    """A processing step that writes ``text`` to s3://…/<name>/scores.json, apart from its like."""
    output = {
        "OutputName": "scores",
        "S3Output": {
            "S3Uri": f"s3://{BUCKET}/{name}",
            "LocalPath": "/opt/ml/processing/scores",
            "S3UploadMode": "EndOfJob",
        },
    }
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    script = f"echo '{text}' > /opt/ml/processing/scores/scores.json"
    return {
        "Name": "Scores",
        "Type": "Processing",
        "Arguments": {
            "RoleArn": ROLE,
            "AppSpecification": {
                "ImageUri": IMAGE,
                "ContainerEntrypoint": ["/bin/bash", "-c"],
                "ContainerArguments": [script],
            },
            "ProcessingResources": {"ClusterConfig": cluster},
            "ProcessingOutputConfig": {"Outputs": [output]},
        },
        "PropertyFiles": [
            {"PropertyFileName": "Read", "OutputName": "scores", "FilePath": "scores.json"}
        ],
    }


def _asks(path: str) -> dict[str, Any]:
    """A condition step that reads ``path`` of what the step Scores has written."""
    value = {
        "Std:JsonGet": {"PropertyFile": {"Get": "Steps.Scores.PropertyFiles.Read"}, "Path": path}
    }
    condition = {"Type": "LessThan", "LeftValue": value, "RightValue": 0.5}
    arguments = {"Conditions": [condition], "IfSteps": [], "ElseSteps": []}
    return {"Name": "Breaks", "Type": "Condition", "Arguments": arguments}


def _failure(kind: str, right: str, *steps: Mapping[str, Any], says: str = "") -> Failure:
    return Failure(kind=kind, right=tuple(right.split()), steps=steps, says=says)


FAILURES: Mapping[str, Failure] = {
    "rank raises": _failure(
        "exception of one rank, the others wait",
        "exception",
        _ranks(
            "if rank == 1: raise ValueError('row 7 has no label')\ndist.all_reduce(x, group=group)"
        ),
        says=r"rank 1\b.*ValueError: row 7 has no label",
    ),
    "machine raises": _failure(
        "exception on one machine of two",
        "exception",
        _training(
            "hostname | grep -q algo-2 && exec python -c \"raise KeyError('labels')\"; sleep 3",
            machines=2,
        ),
        says="KeyError: 'labels'",
    ),
    "rank killed": _failure(
        "a rank was killed",
        "memory/killed",
        _ranks(
            "if rank == 2: os.kill(os.getpid(), 9)\ntime.sleep(1); dist.all_reduce(x, group=group)"
        ),
    ),
    "rank stands still": _failure(
        "collective timed out",
        "ranks/watchdog ranks/heartbeat",
        _ranks("if rank == 1: time.sleep(20)\ndist.all_reduce(x, group=group)", 2),
    ),
    "ranks unlike": _failure(
        "collectives of unlike shape",
        "ranks/mismatch",
        _ranks(
            "dist.all_reduce(torch.ones(3 + rank), group=group)",
            2,
            "TORCH_DISTRIBUTED_DEBUG=DETAIL",
        ),
    ),
    "nobody there": _failure(
        "rendezvous",
        "ranks/rendezvous",
        _python(
            "import datetime, torch.distributed as dist\n"
            "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:29711', rank=0,\n"
            "                        world_size=2, timeout=datetime.timedelta(seconds=2))"
        ),
    ),
    "port taken": _failure(
        "port in use",
        "ranks/port",
        _python(
            "import socket\na = socket.create_server(('127.0.0.1', 0))\n"
            "socket.create_server(('127.0.0.1', a.getsockname()[1]))"
        ),
    ),
    "memory": _failure(
        "host memory full",
        "memory/host",
        _python(
            "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n"
            "rows = [bytearray(1 << 26) for _ in range(99)]"
        ),
    ),
    "killed": _failure("killed from outside", "memory/killed", _training("kill -9 $$")),
    "crash": _failure(
        "native crash", "hardware/segfault", _python("import ctypes\nctypes.string_at(0)")
    ),
    "disk": _failure(
        "full disk",
        "memory/disk",
        _python("with open('/dev/full', 'wb', 0) as checkpoint: checkpoint.write(b'x' * 9999)"),
    ),
    "files": _failure(
        "too many open files",
        "memory/too-many-files",
        _python(
            "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
            "kept = [open('/dev/null') for _ in range(99)]"
        ),
    ),
    "time": _failure("time limit", "aws/time-limit", _training("sleep 30", seconds=1)),
    "entry point": _failure(
        "missing entry point", "program/file program/entry-point", _training("python train.py")
    ),
    "command": _failure(
        "missing command", "program/entry-point", _training("accelerate-launch-x train.py")
    ),
    "module": _failure(
        "missing module", "program/module", _python("import flash_attn_none"), says="flash_attn"
    ),
    "import": _failure(
        "another version of a package", "program/import", _python("from json import loadz")
    ),
    "library": _failure(
        "missing shared library",
        "program/shared-library",
        _python("import ctypes\nctypes.CDLL('libcudart.so.99')"),
    ),
    "pip": _failure(
        "package that pip does not find",
        "program/package-index",
        _training("pip install --no-cache-dir -q 'not-there-for-sure==9.9'"),
    ),
    "argument": _failure(
        "unknown hyperparameter",
        "program/arguments",
        _training(
            "cat > t.py <<'PY'\nimport argparse\np = argparse.ArgumentParser()\n"
            "p.add_argument('--lr', type=float)\np.parse_args()\nPY\npython t.py --learning_rate 1"
        ),
        says="learning_rate",
    ),
    "value": _failure(
        "bad hyperparameter",
        "program/argument",
        _training(
            "cat > t.py <<'PY'\nimport argparse\np = argparse.ArgumentParser()\n"
            "p.add_argument('--lr', type=float)\np.parse_args()\nPY\npython t.py --lr high"
        ),
        says="lr",
    ),
    "record": _failure(
        "bad record",
        "program/record",
        _python("import json\nfor row in ('{\"a\": 1}', '{\"a\": '): print(json.loads(row))"),
    ),
    "worker": _failure(
        "bad record in a DataLoader's worker",
        "exception",
        _python(
            "import torch\nclass Rows(torch.utils.data.Dataset):\n"
            "    def __len__(self): return 4\n"
            "    def __getitem__(self, at): raise KeyError(f'row {at} has no label')\n"
            "next(iter(torch.utils.data.DataLoader(Rows(), num_workers=2)))"
        ),
        says="KeyError: 'row . has no label'",
    ),
    "damaged": _failure(
        "damaged file",
        "program/damaged program/cut-short",
        _python(
            "import torch\ntorch.save({'w': torch.ones(9999)}, 'm.pt')\n"
            "data = open('m.pt', 'rb').read()\nopen('m.pt', 'wb').write(data[:5000])\n"
            "torch.load('m.pt')"
        ),
    ),
    "nan": _failure(
        "loss is not a number",
        "program/not-finite",
        _python(
            "import torch\nw = torch.zeros(1, requires_grad=True)\n"
            "with torch.autograd.detect_anomaly(): (torch.sqrt(w) * 0).sum().backward()"
        ),
    ),
    "checkpoint": _failure(
        "checkpoint of another model",
        "program/state-dict",
        _python(
            "import torch\nm = torch.nn.Linear(3, 2)\n"
            "m.load_state_dict(torch.nn.Linear(4, 2).state_dict())"
        ),
    ),
    "shapes": _failure(
        "shapes do not fit",
        "program/shapes",
        _python("import torch\ntorch.nn.Linear(3, 2)(torch.ones(5, 4))"),
    ),
    "token": _failure(
        "token beyond the vocabulary",
        "program/index",
        _python("import torch\ntorch.nn.Embedding(10, 2)(torch.tensor([10]))"),
    ),
    "no GPU": _failure(
        "no GPU", "hardware/no-gpu", _python("import torch\ntorch.ones(1).to('cuda')")
    ),
    "network": _failure(
        "no network",
        "program/network",
        _python("import urllib.request\nurllib.request.urlopen('https://huggingface.co')"),
    ),
    "credentials": _failure(
        "no credentials",
        "aws/credentials",
        _python(
            "import os\nos.environ['AWS_EC2_METADATA_DISABLED'] = 'true'\n"
            "for name in [*os.environ]:\n"
            "    if name.startswith('AWS_CONTAINER'): del os.environ[name]\n"
            "import boto3\nboto3.client('s3', region_name='us-east-1').list_buckets()"
        ),
    ),
    "key": _failure(
        "missing object",
        "aws/no-data",
        _python(
            "import boto3\nboto3.client('s3').get_object(Bucket='why', Key='not/there.parquet')"
        ),
    ),
    "bucket": _failure(
        "missing bucket",
        "aws/bucket",
        _python("import boto3\nboto3.client('s3').list_objects_v2(Bucket='not-there-at-all')"),
    ),
    "input": _failure(
        "nothing at an input's address",
        "aws/no-data",
        _training("ls", InputDataConfig=_channel(f"s3://{BUCKET}/empty/")),
    ),
    "channel": _failure(
        "missing channel",
        "program/channel",
        _python("import os\nprint(os.environ['SM_CHANNEL_VALIDATION'])"),
        says="SM_CHANNEL_VALIDATION",
    ),
    "capacity": _failure("no capacity", "aws/capacity", _training("ls", instance=SCARCE)),
    "own reason": _failure(
        "reason that the program left",
        "reason",
        _training("echo 'weights of step 40 are damaged' > /opt/ml/output/failure; exit 1"),
        says="weights of step 40 are damaged",
    ),
    "function": _failure(
        "failing Lambda function",
        "aws/function",
        {
            "Name": "Breaks",
            "Type": "Lambda",
            "FunctionArn": FUNCTION,
            "Arguments": {"parts": 0},
            "OutputParameters": [{"OutputName": "share", "OutputType": "Float"}],
        },
        says="ZeroDivisionError|division by zero",
    ),
    "callback": _failure(
        "callback that was answered: failed",
        "reason",
        {
            "Name": "Breaks",
            "Type": "Callback",
            "SqsQueueUrl": "QUEUE",
            "Arguments": {"run": {"Get": "Execution.PipelineExecutionId"}},
            "OutputParameters": [],
        },
        says="the reviewer found leaked labels",
    ),
    "fail step": _failure(
        "Fail step",
        "reason",
        {"Name": "Breaks", "Type": "Fail", "Arguments": {"ErrorMessage": "AUC 0.4 is below 0.7"}},
        says="AUC 0.4 is below 0.7",
    ),
    "property": _failure(
        "condition on a missing property",
        "reason aws/property",
        _writes("property", '{"auc": 0.7}'),
        _asks("loss.mean"),
        says="loss",
    ),
    "json": _failure(
        "bad JSON in an output",
        "reason program/record aws/property",
        _writes("json", "auc = 0.7"),
        _asks("auc"),
        says="JSON|json|record",
    ),
}
"""Name → what fails."""
