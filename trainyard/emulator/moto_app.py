"""moto's server, unpatched, for every service and operation that the emulator lacks.

moto keeps its state in memory. For SageMaker, successful calls that change something are written
to a journal and made again at the next start: names and settings survive, creation times become
those of the start. Other services (IAM, CloudWatch, Events, ...) start empty.
"""

import contextlib
import io
import json
import logging
import os
import threading
from pathlib import Path
from wsgiref.types import WSGIEnvironment
from xml.sax.saxutils import escape

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug import Request, Response
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder, run_wsgi_app

from trainyard.common import whole_file
from trainyard.common.errors import EmulatorError
from trainyard.emulator.api import REGION, ApiError

log = logging.getLogger(__name__)

_CHANGES = ("Add", "Create", "Delete", "Put", "Register", "Update")


class Moto:
    """moto's WSGI application behind one lock: its backends are plain dictionaries."""

    def __init__(self, journal: Path) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._journal = journal
        self._reset()
        self._replay()

    def answer(self, request: Request) -> Response:
        """The answer to any request, with moto's HTML errors put into the service's own form."""
        request.environ["wsgi.input"] = io.BytesIO(request.get_data())  # cached: we look too
        with contextlib.nullcontext() if _waits(request) else self._lock:
            try:
                body, status, headers = run_wsgi_app(self._app, request.environ, buffered=True)
            except NotImplementedError as missing:
                return unimplemented(request, str(missing))
            except ModuleNotFoundError as missing:  # of the many that only some services need
                detail = f"moto needs {missing.name} for it: pip install 'moto[server]'"
                return unimplemented(request, detail)
        if headers.get("Content-Type", "").startswith("text/html") and int(status[:3]) >= 400:
            return unimplemented(request, f"moto answered {status}.")
        return Response(body, status, headers)

    def sagemaker(self, operation: str, request: dict) -> dict:
        """One SageMaker operation, in process. Raises :class:`ApiError`."""
        answer = self._call(operation, request)
        if operation.startswith(_CHANGES):
            self._record(operation, request)
        return answer

    def _call(self, operation: str, request: dict) -> dict:
        environ = _sagemaker_environ(operation, request)
        response = self.answer(Request(environ))
        body = response.get_data(as_text=True)
        answer = json.loads(body) if body else {}
        if response.status_code >= 400:
            code = answer.get("__type", "InternalFailure").rpartition("#")[2]
            message = answer.get("message") or answer.get("Message") or body
            raise ApiError(code, message, response.status_code)
        return answer

    def _record(self, operation: str, request: dict) -> None:
        line = json.dumps({"operation": operation, "request": request})
        with self._journal.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _reset(self) -> None:
        """moto's state belongs to the process: a state directory must not see another's."""
        environ = EnvironBuilder(path="/moto-api/reset", method="POST").get_environ()
        _, status, _ = run_wsgi_app(self._app, environ, buffered=True)
        if not status.startswith("200"):
            raise EmulatorError(f"moto cannot be reset: it answered {status}")

    def _replay(self) -> None:
        if not self._journal.exists():
            return
        *whole, torn = self._journal.read_text().split("\n")
        if torn:  # killed while writing: that call was never answered
            whole_file.write(self._journal, "".join(f"{line}\n" for line in whole))
        for number, line in enumerate(whole, start=1):
            entry = json.loads(line)
            try:
                self._call(entry["operation"], entry["request"])
            except ApiError as failure:
                log.warning("%s:%d is not replayed: %s", self._journal, number, failure)


def _waits(request: Request) -> bool:
    """Whether it may take its time: a long poll of a queue, which others are to fill meanwhile."""
    target = request.headers.get("X-Amz-Target", "")
    return "AmazonSQS.ReceiveMessage" in (target, f"AmazonSQS.{request.form.get('Action')}")


def unimplemented(request: Request, detail: str) -> Response:
    """A 400 in the service's protocol: botocore retries a 500 and cannot parse HTML."""
    target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
    operation = target or request.form.get("Action") or f"{request.method} {request.path}"
    message = f"The emulator does not implement {operation}. {detail}".strip()
    log.warning(message)
    if "Action" in request.form:  # the query protocol: IAM, STS
        return query_error("InvalidAction", message)
    body = {"__type": "UnknownOperationException", "message": message}
    headers = {"x-amzn-errortype": "UnknownOperationException"}
    return Response(json.dumps(body), 400, headers, content_type="application/x-amz-json-1.1")


def query_error(code: str, message: str, status: int = 400) -> Response:
    """An error in the query protocol's form: IAM, STS."""
    body = (
        "<ErrorResponse><Error><Type>Sender</Type>"
        f"<Code>{code}</Code><Message>{escape(message)}</Message></Error></ErrorResponse>"
    )
    return Response(body, status, content_type="text/xml")


def _sagemaker_environ(operation: str, request: dict) -> WSGIEnvironment:
    credential = f"Credential=emulator/20200101/{REGION}/sagemaker/aws4_request"
    return EnvironBuilder(
        method="POST",
        base_url=f"http://api.sagemaker.{REGION}.amazonaws.com",
        data=json.dumps(request),
        content_type="application/x-amz-json-1.1",
        headers=Headers(
            {
                "X-Amz-Target": f"SageMaker.{operation}",
                "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=0",
            }
        ),
    ).get_environ()
