"""The SageMaker service: operations on pipelines, executions, jobs, endpoints and tags."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from werkzeug import Request, Response

from trainyard.emulator.cloudwatch import metric_store
from trainyard.emulator.cloudwatch.cloudwatch_api import CloudWatch
from trainyard.emulator.cloudwatch.metric_store import Metrics
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.emulator.events import eventbridge
from trainyard.emulator.events.eventbridge import Events
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.lambda_.lambda_functions import Functions
from trainyard.emulator.logs.log_store import LogStore
from trainyard.emulator.request_scope import ApiError, make_arn
from trainyard.emulator.request_shapes import check_request_shape
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.callback_tokens import Callbacks
from trainyard.emulator.sagemaker.endpoints.endpoints import EndpointConfigs, Endpoints
from trainyard.emulator.sagemaker.endpoints.invocations import Reply
from trainyard.emulator.sagemaker.endpoints.model_containers import Models
from trainyard.emulator.sagemaker.jobs.job import KINDS, STOP_GRACE, JobServices
from trainyard.emulator.sagemaker.jobs.job_api import Jobs
from trainyard.emulator.sagemaker.model_registry import Tags
from trainyard.emulator.sagemaker.pipelines.executions import Executions
from trainyard.emulator.sagemaker.pipelines.pipeline_versions import Pipelines
from trainyard.emulator.sagemaker.pipelines.running_execution import Work
from trainyard.emulator.sagemaker.pipelines.steps import Services
from trainyard.emulator.sagemaker.search_api import Experiments, search_resources
from trainyard.emulator.sagemaker.tuning.tuning_api import Tunings

Operation = Callable[[dict], dict]
_OWN_KINDS = (
    *("pipeline", "training-job", "processing-job", "transform-job"),
    *("hyper-parameter-tuning-job", "endpoint"),
)
"""Kinds of resources whose tags are stored in ``self._tags``."""


class SageMaker:
    """The SageMaker service of one region: takes JSON requests and returns JSON responses, with
    times in seconds since the epoch.

    ``state`` is the directory for pipelines, executions and jobs. ``forward(operation, request)``
    performs operations that run nothing, above all those of the model registry. ``stop_grace`` is
    the number of seconds from SIGTERM to SIGKILL for a stopped job. ``python`` is the interpreter
    that replaces images. ``aws`` has the clients with which the emulator calls itself. ``handle``
    raises :class:`ApiError`.

    To add operations, add a line to ``_iter_operations``.
    """

    def __init__(
        self,
        state: Path,
        objects: ObjectStore,
        logs: LogStore,
        aws: Aws,
        forward: Callable[..., dict],
        stop_grace: float = STOP_GRACE,
        python: Path = OWN_PYTHON,
    ) -> None:
        self._forward = forward
        self._models = Models(forward, python)
        self._cloudwatch = CloudWatch(state / "cloudwatch")
        metrics, alarms = self._cloudwatch.metrics, self._cloudwatch.alarms
        self._events = Events(state / "events", aws)
        changes = self._events.changes
        self._experiments = Experiments(forward)

        def on_change(kind: str, record: dict) -> None:
            """Send the event of a job's change, and create its trial component when it ends."""
            changes.report_job(kind, record)
            self._experiments.record_job(kind, record)

        job_services = JobServices(
            state / "jobs", objects, logs, aws, self._models, metrics, stop_grace, python, on_change
        )
        self._configs = EndpointConfigs(forward, self._models)
        self._jobs, self._endpoints = (
            Jobs(job_services),
            Endpoints(job_services, self._configs, alarms),
        )
        self._functions = Functions(state / "functions", job_services)
        self._callbacks = Callbacks()
        self._pipelines = Pipelines(state / "pipelines", objects, python)
        self._tags = Tags(state / "tags.json")
        self._tunings = Tunings(state / "tuning", job_services, self._jobs, self._tags)
        services = Services(
            jobs=self._jobs,
            tunings=self._tunings,
            endpoints=self._endpoints,
            functions=self._functions,
            callbacks=self._callbacks,
            objects=objects,
            logs=logs,
            aws=aws,
            experiments=self._experiments,
            forward=self._perform_operation,
        )
        work = Work(services)

        def observe(record: dict, step: str | None) -> None:
            """Record metrics and send events when an execution or a step changes."""
            metric_store.record_execution(metrics, record, step)
            changes.report_execution(record)

        self._executions = Executions(state / "executions", self._pipelines, work, objects, observe)
        self._operations = {
            name: answer for table in self._iter_operations() for name, answer in table.items()
        }

    def owns(self, operation: str) -> bool:
        """Return whether this class performs the operation, and not ``forward``."""
        return operation in self._operations

    def handle(self, operation: str, request: dict) -> dict:
        """Check the request, and perform the operation, for which :meth:`owns` must be true."""
        check_request_shape(operation, request)
        return self._operations[operation](request)

    @property
    def metrics(self) -> Metrics:
        """The metrics measured in this region."""
        return self._cloudwatch.metrics

    def invoke(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """Handle InvokeEndpoint, a request to ``sagemaker-runtime``."""
        return self._endpoints.invoke(path, body, headers)

    def begin(self) -> None:
        """Resume what an earlier emulator left unfinished. Call it when this emulator accepts
        requests.
        """
        self._cloudwatch.begin()
        self._events.begin()
        self._functions.resume()

    def answer_other_service(self, service: str, request: Request) -> Response | None:
        """Return the response to a request to another service. Return None if the service is not
        handled here.
        """
        if service == "monitoring":
            return self._cloudwatch.answer(request)
        if service in eventbridge.SERVICES:
            return self._events.answer(service, request)
        return self._functions.answer(request) if service == "lambda" else None

    def send_package_event(self, package: dict) -> None:
        """Send the event of a new, approved or rejected model package."""
        self._events.changes.report_package(package)

    def close(self) -> None:
        """Stop every execution, job and endpoint. Return when none of their processes is left."""
        # Whatever starts jobs is stopped before the jobs. Its threads end when the jobs that they
        # wait for have ended, so they are joined after that.
        self._endpoints.close()
        self._executions.close()
        self._callbacks.close()
        self._functions.close()
        self._tunings.close()
        self._jobs.close()
        self._tunings.join()
        self._executions.join()
        self._cloudwatch.close()
        self._events.close()

    def _perform_operation(self, operation: str, request: dict) -> dict:
        """Perform an operation that a step calls: one of this class's or one of ``forward``'s."""
        if self.owns(operation):
            return self.handle(operation, request)
        return self._forward(operation, request)

    def _iter_operations(self) -> Iterator[dict[str, Operation]]:
        """Iterate over mappings of operation names to the functions that perform them."""
        yield self._pipelines.list_operations()
        yield self._executions.list_operations()
        yield self._endpoints.list_operations()
        yield {
            name: self._wrap_callback_with_wait(answer)
            for name, answer in self._callbacks.list_operations().items()
        }
        yield self._tunings.list_operations()
        yield from (self._build_job_operations(kind) for kind in KINDS)
        yield {
            "CreateEndpoint": self._wrap_create_with_tags(self._endpoints.create, "EndpointArn"),
            "CreateEndpointConfig": self._configs.create,
            "CreateModel": self._models.create,
            "CreatePipeline": self._wrap_create_with_tags(self._pipelines.create, "PipelineArn"),
            "DeleteEndpoint": self._wrap_delete_with_tags("Endpoint", self._endpoints.delete),
            "DeletePipeline": self._delete_pipeline,
            "Search": functools.partial(
                search_resources, self._perform_operation, self._executions
            ),
            "AddTags": self._route_by_arn("AddTags", self._tags.add),
            "ListTags": self._route_by_arn("ListTags", self._tags.list_tags),
            "DeleteTags": self._route_by_arn("DeleteTags", self._tags.delete),
        }

    def _build_job_operations(self, kind: str) -> dict[str, Operation]:
        """Return the operations on jobs of a kind: {operation: function}."""
        jobs, key, name = self._jobs, f"{kind}JobArn", f"{kind}JobName"

        def create_job(request: dict) -> dict:
            return {key: jobs.create(kind, self._experiments.add_trial(kind, request)).arn}

        def delete(request: dict) -> dict:
            """Delete the job's record and its tags."""
            self._tags.delete_all(jobs.delete(kind, request[name]))
            return {}

        # SageMaker has no DeleteTransformJob.
        deletes = {} if kind == "Transform" else {f"Delete{kind}Job": delete}
        return deletes | {
            f"Create{kind}Job": self._wrap_create_with_tags(create_job, key),
            f"Describe{kind}Job": lambda request: jobs.describe(kind, request[name]),
            f"List{kind}Jobs": lambda request: jobs.list_jobs(kind, request),
            f"Stop{kind}Job": lambda request: jobs.stop(kind, request[name]),
        }

    def _wrap_callback_with_wait(self, answer: Operation) -> Operation:
        """Return a function that calls ``answer``, which responds to a callback, and then waits
        until the end of the callback's step is on disk.
        """

        def answer_and_wait(request: dict) -> dict:
            result = answer(request)
            self._executions.wait_for_callback_step(
                result["PipelineExecutionArn"], request["CallbackToken"]
            )
            return result

        return answer_and_wait

    def _delete_pipeline(self, request: dict) -> dict:
        """Delete a pipeline and its tags. Raises ``ConflictException`` if it has running
        executions.
        """
        arn = self._pipelines.describe(request)["PipelineArn"]
        if running := self._executions.list_running(arn):
            message = f"Pipeline {arn} has executions that are running: {', '.join(running)}"
            raise ApiError("ConflictException", message)
        answer = self._pipelines.delete(request)
        self._tags.delete_all(arn)
        return answer

    def _wrap_create_with_tags(self, create: Operation, key: str) -> Operation:
        """Return a function that calls ``create`` and adds the request's Tags to the resource."""

        def create_with_tags(request: dict) -> dict:
            answer = create(request)
            if tags := request.get("Tags"):
                self._tags.add({"ResourceArn": answer[key], "Tags": tags})
            return answer

        return create_with_tags

    def _wrap_delete_with_tags(self, kind: str, delete: Operation) -> Operation:
        """Return a function that calls ``delete`` and deletes the resource's tags."""

        def delete_with_tags(request: dict) -> dict:
            # Read the ARN first: after the deletion the resource cannot be described.
            arn = self._operations[f"Describe{kind}"](request)[f"{kind}Arn"]
            answer = delete(request)
            self._tags.delete_all(arn)
            return answer

        return delete_with_tags

    def _route_by_arn(self, operation: str, handle: Operation) -> Operation:
        """Return a function that calls ``handle`` for the ARNs of pipelines, jobs and endpoints,
        and forwards requests for other ARNs.
        """

        def dispatch(request: dict) -> dict:
            prefixes = tuple(make_arn("sagemaker", f"{kind}/") for kind in _OWN_KINDS)
            if request["ResourceArn"].startswith(prefixes):
                return handle(request)
            return self._forward(operation, request)

        return dispatch
