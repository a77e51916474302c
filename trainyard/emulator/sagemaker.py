"""SageMaker: the operations on pipelines, executions, jobs and endpoints, and their tags."""

from collections.abc import Callable
from pathlib import Path

from trainyard.emulator.api import ACCOUNT, REGION, ApiError
from trainyard.emulator.dag.executions import Executions
from trainyard.emulator.dag.pipelines import Pipelines
from trainyard.emulator.dag.work import Work
from trainyard.emulator.jobs.job import KINDS, STOP_GRACE, Place
from trainyard.emulator.jobs.jobs import Jobs
from trainyard.emulator.logs import LogStore
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.runtime.interpreter import OWN
from trainyard.emulator.serving import endpoints
from trainyard.emulator.serving.endpoint import Answer
from trainyard.emulator.serving.endpoints import Endpoints
from trainyard.emulator.shapes import check
from trainyard.emulator.steps import Services
from trainyard.emulator.tags import Tags

Operation = Callable[[dict], dict]
_OWN = tuple(
    f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:{kind}/"
    for kind in ("pipeline", "training-job", "processing-job")
)


class SageMaker:
    """JSON requests in, JSON answers out, times as seconds since the epoch.

    ``state``: directory for pipelines, executions and jobs. ``forward(operation, request)``
    answers what runs nothing, above all the model registry. ``stop_grace``: seconds from SIGTERM
    to SIGKILL for a stopped job. ``python``: what stands in for images. ``handle`` raises
    :class:`ApiError`.
    """

    OPERATIONS = frozenset(
        {
            *("CreatePipeline", "UpdatePipeline", "DeletePipeline", "DescribePipeline"),
            *("ListPipelines", "ListPipelineVersions", "UpdatePipelineVersion"),
            *("StartPipelineExecution", "StopPipelineExecution", "RetryPipelineExecution"),
            *("UpdatePipelineExecution", "DescribePipelineExecution", "ListPipelineExecutions"),
            *("ListPipelineExecutionSteps", "ListPipelineParametersForExecution"),
            *("DescribePipelineDefinitionForExecution",),
            *(f"{verb}{kind}Job" for kind in KINDS for verb in ("Create", "Describe", "Stop")),
            *(f"List{kind}Jobs" for kind in KINDS),
            *("AddTags", "ListTags", "DeleteTags"),
            *endpoints.OPERATIONS,
        }
    )

    def __init__(
        self,
        state: Path,
        objects: ObjectStore,
        logs: LogStore,
        forward: Callable[[str, dict], dict],
        stop_grace: float = STOP_GRACE,
        python: Path = OWN,
    ) -> None:
        self._forward = forward
        place = Place(state / "jobs", objects, logs, stop_grace, python)
        self._jobs, self._endpoints = Jobs(place), Endpoints(place, forward)
        self._pipelines = Pipelines(state / "pipelines", objects)
        work = Work(Services(jobs=self._jobs, forward=forward))
        self._executions = Executions(state / "executions", self._pipelines, work, objects)
        self._tags = Tags(state / "tags.json")
        self._operations = self._table()

    def handle(self, operation: str, request: dict) -> dict:
        if operation in endpoints.OPERATIONS:
            return self._endpoints.handle(operation, request)
        check(operation, request)
        return self._operations[operation](request)

    def invoke(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """InvokeEndpoint, a request to ``sagemaker-runtime``."""
        return self._endpoints.invoke(path, body, headers)

    def close(self) -> None:
        """Stops every execution, job and endpoint; returns when no process of theirs is left."""
        self._endpoints.close()
        self._executions.close()
        self._jobs.close()
        self._executions.join()

    def _table(self) -> dict[str, Operation]:
        pipelines, executions = self._pipelines, self._executions
        return {
            "CreatePipeline": self._tagged(pipelines.create, "PipelineArn"),
            "UpdatePipeline": pipelines.update,
            "DeletePipeline": self._delete_pipeline,
            "DescribePipeline": pipelines.describe,
            "ListPipelines": pipelines.list_pipelines,
            "ListPipelineVersions": pipelines.list_versions,
            "UpdatePipelineVersion": pipelines.update_version,
            "StartPipelineExecution": executions.start,
            "StopPipelineExecution": executions.stop,
            "RetryPipelineExecution": executions.retry,
            "UpdatePipelineExecution": executions.update,
            "DescribePipelineExecution": executions.describe,
            "ListPipelineExecutions": executions.list_executions,
            "ListPipelineExecutionSteps": executions.list_steps,
            "ListPipelineParametersForExecution": executions.parameters,
            "DescribePipelineDefinitionForExecution": executions.definition,
            "AddTags": self._for_own("AddTags", self._tags.add),
            "ListTags": self._for_own("ListTags", self._tags.list_tags),
            "DeleteTags": self._for_own("DeleteTags", self._tags.delete),
        } | {k: v for kind in KINDS for k, v in self._job_table(kind).items()}

    def _job_table(self, kind: str) -> dict[str, Operation]:
        jobs, arn, name = self._jobs, f"{kind}JobArn", f"{kind}JobName"
        create = self._tagged(lambda request: {arn: jobs.create(kind, request).arn}, arn)
        return {
            f"Create{kind}Job": create,
            f"Describe{kind}Job": lambda request: jobs.describe(kind, request[name]),
            f"List{kind}Jobs": lambda request: jobs.list_jobs(kind, request),
            f"Stop{kind}Job": lambda request: jobs.stop(kind, request[name]),
        }

    def _delete_pipeline(self, request: dict) -> dict:
        arn = self._pipelines.describe(request)["PipelineArn"]
        if running := self._executions.running(arn):
            message = f"Pipeline {arn} has executions that are running: {', '.join(running)}"
            raise ApiError("ConflictException", message)
        answer = self._pipelines.delete(request)
        self._tags.forget(arn)
        return answer

    def _tagged(self, create: Operation, arn: str) -> Operation:
        """``create``, and the request's Tags on what it made."""

        def create_with_tags(request: dict) -> dict:
            answer = create(request)
            if tags := request.get("Tags"):
                self._tags.add({"ResourceArn": answer[arn], "Tags": tags})
            return answer

        return create_with_tags

    def _for_own(self, operation: str, handle: Operation) -> Operation:
        """``handle`` for the ARNs of pipelines, executions and jobs; others are forwarded."""

        def dispatch(request: dict) -> dict:
            if request["ResourceArn"].startswith(_OWN):
                return handle(request)
            return self._forward(operation, request)

        return dispatch
