"""Archives for jobs and models, and pipelines that are created and run at once."""

import functools
import io
import tarfile
from typing import Any

from tests.trainyard.emulator.harness import IMAGE, Cloud, until, wait


def archive(files: dict[str, bytes | str]) -> bytes:
    """Return a tar.gz of name → content."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return found.getvalue()


def unpack_files(data: bytes) -> dict[str, bytes]:
    """Return name → content of a tar.gz of files."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}


def wait_for_transform(aws: Cloud, name: str) -> dict:
    """Return the description of a transform job at its end."""
    describe = functools.partial(aws.sm.describe_transform_job, TransformJobName=name)
    return wait(describe, "TransformJobStatus", ("Completed", "Failed", "Stopped"))


def join_values(on: str, *values: Any) -> dict:
    return {"Std:Join": {"On": on, "Values": list(values)}}


def register_step(model: Any, **more: Any) -> dict:
    """Return the step "Register", of a package of ``model`` in the group "group"."""
    specification = {
        "Containers": [{"Image": IMAGE, "ModelDataUrl": model}],
        "SupportedContentTypes": ["application/json"],
        "SupportedResponseMIMETypes": ["application/json"],
    }
    arguments = {"ModelPackageGroupName": "group", "InferenceSpecification": specification}
    return {"Name": "Register", "Type": "RegisterModel", "Arguments": arguments | more}


def run(aws: Cloud, name: str, steps: list[dict], **more: Any) -> tuple[dict, dict]:
    """Create the pipeline and run it; return the execution's description and its steps."""
    aws.create(name, steps, **more)
    return aws.run(name)


def wait_for_steps(aws: Cloud, arn: str, status: str = "Succeeded") -> dict:
    """Return the steps of the execution, which must end with that status."""
    answer = aws.wait_for_execution(arn)
    assert answer["PipelineExecutionStatus"] == status, answer
    return aws.steps(arn)


def statuses(steps: dict) -> dict[str, str]:
    return {name: step["StepStatus"] for name, step in steps.items()}


def job_of(aws: Cloud, arn: str, step: str = "A") -> str:
    """Return the name of a step's processing job, when it has begun."""
    made = until(lambda: aws.steps(arn).get(step, {}).get("Metadata", {}).get("ProcessingJob"))
    return made["Arn"].rpartition("/")[2]
