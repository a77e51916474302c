"""The endpoint: every AWS service at one loopback address.

    with serve(Path("state")) as endpoint:
        boto3.client("s3", endpoint_url=endpoint.url, ...)   # or run a command with endpoint.env

A request is routed by the service that it is signed for and by ``X-Amz-Target``: S3, logs and
SageMaker are the emulator's own, the other services are moto's. A request is refused if it is not
signed with the secret of the state directory, comes from a web page, or is for a foreign host name.
"""

import contextlib
import functools
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from werkzeug import Request, Response
from werkzeug.datastructures import Headers

from trainyard.common.errors import EmulatorError
from trainyard.emulator import damaged_state
from trainyard.emulator.client_environment import announce_endpoint, prepare_environment
from trainyard.emulator.cloudwatch import metric_store
from trainyard.emulator.containers import container_engine
from trainyard.emulator.containers.isolation import check_can_run
from trainyard.emulator.containers.node import OWN_PYTHON, resolve_python
from trainyard.emulator.http_server import UNDERSCORE_HEADERS, Server
from trainyard.emulator.iam import access_keys, account_policies, service_calls
from trainyard.emulator.iam.access_keys import Keys
from trainyard.emulator.iam.authority import Authority, Mode
from trainyard.emulator.iam.security_tokens import SecurityTokens, find_denial
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.logs.log_store import LogStore
from trainyard.emulator.regions import MakeSageMaker, SageMaker, Worlds
from trainyard.emulator.request_scope import (
    ACCOUNT,
    ApiError,
    enter_scope,
    find_other_account,
    make_arn,
    parse_region,
    read_account,
    read_region,
    use_caller,
)
from trainyard.emulator.request_signatures import (
    RequestRefusal,
    RequestSignature,
    check_session,
    verify_signature,
)
from trainyard.emulator.rest_requests import parse_json_object
from trainyard.emulator.s3 import S3, operation_routes
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.s3.upload_body import SIGNATURE_KEY
from trainyard.emulator.sagemaker.endpoints.serving_instance import Answer
from trainyard.emulator.services import moto_operations
from trainyard.emulator.services.moto_app import Moto, make_query_error, refuse_operation
from trainyard.emulator.services.moto_operations import list_ignored_members
from trainyard.language.definition_document import END_STATUSES
from trainyard.permissions.policy_documents import Policy

log = logging.getLogger(__name__)

CREATES = ("CreateStack", "ExecuteChangeSet")
_SCOPE = re.compile(r"/\d{8}/[^/]+/(?P<service>[^/]+)/aws4_request")
_LOGS = "/aws/sagemaker/Endpoints/"
_HOST = re.compile(
    r"(127\.0\.0\.1|localhost|.+\.localhost|169\.254\.170\.2|10\.\d+\.\d+\.1)(:\d+)?"
)


Prepare = Callable[[Path, ObjectStore], None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running endpoint of the emulator."""

    url: str
    env: dict[str, str] = field(repr=False)
    """Environment variables, including the secret, with which a process uses this endpoint."""
    app: "App"

    def wait(self, execution: Any, seconds: float = 3600) -> dict:
        """Wait until an execution has ended; return DescribePipelineExecution's response.

        Args:
            execution: ARN of the execution, boto3's response to StartPipelineExecution, or the
                object that the SDK's ``pipeline.start()`` returned.
            seconds: maximum time to wait.

        Raises:
            ApiError: the execution does not exist.
            EmulatorError: ``execution`` is none of these.
            TimeoutError: the execution has not ended after ``seconds``.
        """
        end = time.monotonic() + seconds
        arn = _find_execution_arn(execution)
        request = {"PipelineExecutionArn": arn}
        while time.monotonic() < end:
            with enter_scope(parse_region(arn), find_other_account(arn)):
                description = self.app.sagemaker.handle("DescribePipelineExecution", request)
            if description["PipelineExecutionStatus"] in END_STATUSES:
                return description
            time.sleep(0.05)
        raise TimeoutError(f"{arn} is still running after {seconds:g} s")


def _find_execution_arn(execution: Any) -> str:
    """Return the ARN of what :meth:`Endpoint.wait` accepts."""
    if isinstance(execution, Mapping):
        execution = execution.get("PipelineExecutionArn")
    for name in ("arn", "pipeline_execution_arn"):  # of the SDK's pipelines; of its resources
        execution = getattr(execution, name, execution)
    if not isinstance(execution, str):
        raise EmulatorError(
            f"wait: {execution!r} is not an execution; give its ARN, what boto3's "
            "start_pipeline_execution returned, or what the SDK's pipeline.start() returned"
        )
    return execution


class App:
    """The WSGI application and all services, for the account and region of the current thread."""

    def __init__(self, state: Path, objects: ObjectStore, make_sagemaker: MakeSageMaker) -> None:
        self.objects = objects
        self.keys = Keys(state)
        self.aws = Aws(self.keys, Authority(objects))
        self._s3 = S3(self.objects)
        self._moto = Moto()
        self._tokens = SecurityTokens(self.keys, self._moto)
        self.worlds = Worlds(state, self.objects, self.aws, make_sagemaker)

    @property
    def logs(self) -> LogStore:
        return self.worlds.get_world().logs

    @property
    def sagemaker(self) -> SageMaker:
        return self.worlds.get_world().sagemaker

    def forward(self, operation: str, request: dict) -> dict:
        """Return the response to a SageMaker operation that does not run anything.

        Raises :class:`ApiError`.
        """
        return self.worlds.get_world().forward(operation, request)

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        request.headers = Headers([*request.headers.items(), *environ.get(UNDERSCORE_HEADERS, ())])
        try:
            response = self._answer(request)
        except Exception as cause:
            # The outermost handler: the cause goes to the log, the client gets AWS's error format.
            log.exception("%s %s failed", request.method, request.path)
            response = _answer_failure(request, damaged_state.is_disk_full(cause))
        response.headers.setdefault("x-amzn-RequestId", str(uuid.uuid4()))
        return response(environ, start)

    def _answer(self, request: Request) -> Response:
        """Return the response to a request, after checking signature and permission."""
        refusal_answer = _refuse_web_page(request)
        if refusal_answer:
            return refusal_answer
        # A role's temporary credentials, at the path that its job was given.
        if loan := self.keys.find_loan(request.path):
            return Response(json.dumps(loan.to_document()), content_type="application/json")
        if request.method == "OPTIONS":
            return self._s3.refuse_preflight(request)
        if metric_store.is_scrape_request(request):
            return metric_store.answer_scrape(request, self.keys.own_pair[1], self.worlds.metrics)
        try:
            signature = verify_signature(request, self._find_secret)
            check_session(request, signature.key, self.keys)
        except RequestRefusal as error:
            return _answer_unauthorized(request, error)
        request.environ[SIGNATURE_KEY] = signature
        account_id = self.keys.resolve_account(signature.key)
        with (
            enter_scope(signature.region, account_id),
            use_caller(lambda: self._find_caller(signature.key)),
        ):
            if signature.service == "sts":
                if wrong := self._tokens.find_request_error(request, signature.key):
                    return _answer_denial(request, "sts", wrong)
                # An account is created when its entry role is assumed for the first time.
                number = access_keys.find_entry_role_account(request.values.get("RoleArn", ""))
                if number and read_account() == ACCOUNT:
                    self.worlds.create_account(number)
            if denial := find_denial(self.aws.authority, self.keys, request, signature):
                return _answer_denial(request, signature.service, denial)
            return self._serve(request, signature)

    def _find_secret(self, access_key: str) -> str | None:
        """Return the secret of a key; None if the key, or its user in IAM, does not exist."""
        if self.keys.is_user_key(access_key) and not self._find_caller(access_key):
            return None
        return self.keys.find_secret(access_key)

    def _find_caller(self, access_key: str) -> str:
        """Return the ARN of the user or session that owns the key; empty if there is none."""
        if identity := self.keys.find_identity(access_key):
            return identity["Arn"]
        with enter_scope(read_region(), self.keys.resolve_account(access_key)):
            user = account_policies.find_user(access_key)
        return user.arn if user else ""

    def _serve(self, request: Request, signature: RequestSignature) -> Response:
        """Pass a request that is permitted to the service that it is signed for."""
        service, target = signature.service, request.headers.get("X-Amz-Target", "")
        if service == "sagemaker" and target.startswith("SageMaker."):
            return _answer_json(request, self._answer_sagemaker)
        if service == "sagemaker" and request.path.startswith("/endpoints/"):
            return self._invoke(request)
        if service == "sagemaker":  # moto's SageMaker does not know the emulator's resources
            return refuse_operation(request, "")
        if service == "logs":
            return _answer_json(request, self.worlds.get_world().logs_api.handle)
        if service == "s3":
            return self._s3.answer(request)
        if service == "sts":
            return self._tokens.answer(request, signature.key)
        if response := self.sagemaker.answer_other_service(service, request):
            return response
        if service == "cloudformation":
            return self._answer_stack(request)
        return self._answer_other(service, request)

    def _answer_stack(self, request: Request) -> Response:
        """Answer a CloudFormation request; stacks may create resources of this SageMaker."""
        from trainyard.emulator.services import stack_resources  # here, as it loads moto: 0.3 s

        stack_resources.Answering.call = staticmethod(self._answer_sagemaker)
        try:
            if request.form.get("TemplateURL"):
                request = stack_resources.inline_template(request, self.objects)
        except ApiError as failure:
            return make_query_error("ValidationError", f"TemplateURL: {failure.message}")
        if name := stack_resources.find_missing_change_set(request):
            return make_query_error("ChangeSetNotFound", f"ChangeSet [{name}] does not exist", 404)
        response = self._answer_other("cloudformation", request)
        if response.status_code >= 400 and request.form.get("Action") in CREATES:
            stack_resources.roll_back_stack(request.form.get("StackName", ""))
        return response

    def _answer_other(self, service: str, request: Request) -> Response:
        """Answer a request to one of moto's services."""
        if reason := moto_operations.find_refused_operation(service, request):
            return refuse_operation(request, f"It would need {reason[1]}.", reason[0])
        if service == "iam" and (names := list_ignored_members(request)):
            return refuse_operation(
                request, f"{', '.join(names)} would have no effect: leave it out."
            )
        response = self._moto.answer(
            request, service, service_calls.find_key_owner(service, request)
        )
        if service == "iam" and request.values.get("Action") == "CreateAccessKey":
            self.keys.store_user_key(response.get_data())
        return response

    def _invoke(self, request: Request) -> Response:
        """Answer InvokeEndpoint with the container's response; its error becomes a ModelError."""
        headers = dict(request.headers.items())
        try:
            reply = self.sagemaker.invoke(request.path, request.get_data(), headers)
        except ApiError as failure:
            return _make_error_response(failure)
        answer = reply.answer
        if answer.is_error:
            return _make_model_error(answer, request.path.split("/")[2])
        return Response(answer.body, 200, reply.headers, content_type=answer.content_type)

    def _answer_sagemaker(self, operation: str, request: dict) -> dict:
        """Answer a SageMaker operation. Raises :class:`ApiError`."""
        if self.sagemaker.owns(operation):
            return self.sagemaker.handle(operation, request)
        return self.forward(operation, request)


@contextlib.contextmanager
def serve_emulator(
    state: Path,
    port: int = 0,
    make_sagemaker: MakeSageMaker | None = None,
    prepare: Prepare | None = None,
    python: Path = OWN_PYTHON,
    internet: bool = False,
    without_capacity: Collection[str] = (),
    iam: Mode = "derived",
    control: tuple[Policy, ...] = (),
    containers: container_engine.Mode | None = None,
) -> Iterator[Endpoint]:
    """Serve on 127.0.0.1 in a thread until the ``with`` block ends; yield the endpoint.

    Only one endpoint at a time is possible in a process: a second one deletes moto's data (IAM,
    models) of the first.

    Args:
        state: state directory.
        port: port to listen on; 0 for any free port.
        make_sagemaker: function that makes the SageMaker service; None for the emulator's own.
        prepare: function that is called with the state directory and its objects when the directory
            is locked, before the services read it.
        python: interpreter that replaces container images.
        internet: whether jobs can reach the internet.
        without_capacity: instance types on which a job fails with AWS's CapacityError.
        iam: to whom IAM's policies apply (see ``authority.Mode``).
        control: service control policies of the account.
        containers: which jobs run in a container engine; None for the mode in the environment.

    Raises:
        EmulatorError: the port or the state directory is in use, or no job could run in that
            directory or with that interpreter.
    """
    state, python = state.resolve(), resolve_python(python)
    check_can_run(state, python, internet)
    damaged_state.prepare_state_directory(state)
    with contextlib.ExitStack() as stack:  # closed in reverse order
        stack.enter_context(container_engine.use_container_mode(containers))
        objects = stack.enter_context(contextlib.closing(ObjectStore(state / "s3")))
        damaged_state.set_aside_damaged_documents(state)
        container_engine.remove_leftover_containers(state)
        if prepare:
            prepare(state, objects)
        app = App(state, objects, make_sagemaker or _load_sagemaker(python))
        app.aws.internet = internet
        app.aws.without_capacity = frozenset(without_capacity)
        app.aws.authority.mode, app.aws.authority.control = iam, control
        serving = stack.enter_context(contextlib.ExitStack())
        stack.callback(app.worlds.close)  # before the store, because stopping jobs may still save
        server = Server(app, port)
        url = f"http://127.0.0.1:{server.port}"
        app.aws.set_endpoint(url, server.serve_socket)
        server.start()
        serving.callback(server.stop)
        # Only now that the endpoint serves: resumed executions call it as clients.
        app.worlds.begin()
        serving.enter_context(announce_endpoint(url, state))
        yield Endpoint(url, prepare_environment(url, state, app.keys.own_pair), app)


def _load_sagemaker(python: Path) -> MakeSageMaker:
    from trainyard.emulator.sagemaker.sagemaker_api import SageMaker as Real

    return functools.partial(Real, python=python)


def _answer_failure(request: Request, disk_full: bool) -> Response:
    """Return the response to a request that raised an exception.

    ``disk_full`` says that the disk is full; botocore does not retry that response.
    """
    message = "The emulator failed on this request: its log has the traceback."
    error = ApiError("InternalFailure", message, 500)
    if disk_full:
        message = "The disk with the emulator's state is full: free some space."
        error = ApiError("InsufficientStorage", message, 507)
    s3 = "X-Amz-Target" not in request.headers and SIGNATURE_KEY in request.environ
    s3 = s3 and request.environ[SIGNATURE_KEY].service == "s3"
    return (
        operation_routes.make_error_response(error, request.path)
        if s3
        else _make_error_response(error)
    )


def _answer_unauthorized(request: Request, error: RequestRefusal) -> Response:
    """Return a refusal in the format of the request's service, or S3's if that is unclear."""
    if error.reason == "missing" and request.mimetype == "multipart/form-data":
        message = "The emulator's S3 does not implement POST forms."
        return operation_routes.make_error_response(
            ApiError("NotImplemented", message, 501), request.path
        )
    credential = request.headers.get("Authorization") or request.args.get("X-Amz-Credential", "")
    scope = _SCOPE.search(credential)
    form = request.headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded")
    named_s3 = scope is not None and scope["service"].lower() == "s3"
    if not named_s3 and (form or "Action" in request.args):
        failure = error.to_api_error(1)
        return make_query_error(failure.code, failure.message, failure.status)
    s3 = named_s3 or (not scope and "X-Amz-Target" not in request.headers)
    return (
        operation_routes.make_error_response(error.to_api_error(0), request.path)
        if s3
        else _make_error_response(error.to_api_error(2))
    )


def _answer_denial(request: Request, service: str, denial: ApiError) -> Response:
    """Return the response to a call that IAM's policies deny, in the format of the service."""
    if service == "s3":
        return operation_routes.make_error_response(denial, request.path)
    if "Action" in request.values:
        return make_query_error(denial.code, denial.message, denial.status)
    return _make_error_response(ApiError("AccessDeniedException", denial.message, denial.status))


def _refuse_web_page(request: Request) -> Response | None:
    """Return a refusal if the request is from a web page (Origin, DNS rebinding); else None.

    A page must have no access, because a pipeline is code that will be executed.
    """
    host = request.headers.get("Host", "")
    if "Origin" in request.headers or not _HOST.fullmatch(host):
        message = f"Only clients on this machine are served, not web pages (Host: {host})."
        return _make_error_response(ApiError("AccessDeniedException", message, 403))
    return None


def _answer_json(request: Request, handle: Callable[[str, dict], dict]) -> Response:
    """Answer a request of the JSON protocol with ``handle(operation, request)``."""
    operation = request.headers["X-Amz-Target"].rpartition(".")[2]
    try:
        answer = handle(operation, parse_json_object(request.get_data()))
    except ApiError as failure:
        log.debug("%s: %s", operation, failure)
        return _make_error_response(failure)
    return Response(json.dumps(answer), content_type="application/x-amz-json-1.1")


def _make_model_error(answer: Answer, endpoint: str) -> Response:
    """Return the container's error as SageMaker passes it on, with the location of its log."""
    text, region, group = answer.body.decode(errors="replace"), read_region(), _LOGS + endpoint
    origin = "client" if 400 <= answer.status < 500 else "server"
    console = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
    message = (
        f'Received {origin} error ({answer.status}) from primary with message "{text}". See '
        f"{console}#logEventViewer:group={group} in account {read_account()} for more information."
    )
    body = {
        "OriginalStatusCode": answer.status,
        "OriginalMessage": text,
        "Message": message,
        "LogStreamArn": make_arn("logs", f"log-group:{group}"),
    }
    headers = {"x-amzn-errortype": "ModelError"}
    return Response(json.dumps(body), 424, headers, content_type="application/json")


def _make_error_response(failure: ApiError) -> Response:
    body = {"__type": failure.code, "message": failure.message}
    headers = {"x-amzn-errortype": failure.code}
    return Response(
        json.dumps(body), failure.status, headers, content_type="application/x-amz-json-1.1"
    )
