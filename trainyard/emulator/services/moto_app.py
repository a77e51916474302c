"""moto's server, unpatched, for every service that the emulator does not implement itself.

moto's SageMaker is not used. moto keeps its data in memory: its services (IAM, Events, ...) start
empty.
"""

import contextlib
import io
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug import Request, Response
from werkzeug.test import EnvironBuilder, run_wsgi_app

from trainyard.common.errors import EmulatorError
from trainyard.emulator.iam import access_keys, account_policies
from trainyard.emulator.request_scope import read_account, read_region

log = logging.getLogger(__name__)

_ACCOUNT = "HTTP_X_MOTO_ACCOUNT_ID"
"""WSGI key of moto's header for the account; a value that a client sends is overwritten."""


class Moto:
    """moto's WSGI application behind one lock, because its backends are plain dictionaries."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        # moto's data belongs to the process, and two state directories must not share it.
        environ = EnvironBuilder(path="/moto-api/reset", method="POST").get_environ()
        _, status, _ = run_wsgi_app(self._app, environ, buffered=True)
        if not status.startswith("200"):
            raise EmulatorError(f"moto cannot be reset: it answered {status}")

    def answer(self, request: Request, service: str, account_id: str = "") -> Response:
        """Return the response to a request; moto's HTML errors become errors of the service.

        ``account_id`` is the account to use, if it is not the current one.
        """
        request.environ["wsgi.input"] = io.BytesIO(request.get_data())  # moto reads it once more
        request.environ[_ACCOUNT] = account_id or read_account()
        # A long poll of a queue waits without the lock, so that other requests can fill the queue.
        target = request.headers.get("X-Amz-Target", "")
        form_action = f"AmazonSQS.{request.form.get('Action')}"
        polls = "AmazonSQS.ReceiveMessage" in (target, form_action)
        with contextlib.nullcontext() if polls else self._lock:
            if account_policies.needs_managed_policies(request.get_data()):
                account_policies.add_managed_policies()
            if access_keys.needs_administrator_roles(request.get_data()):
                access_keys.add_administrator_roles()
            try:
                body, status, headers = run_wsgi_app(self._app, request.environ, buffered=True)
            except NotImplementedError as missing:
                return refuse_operation(request, str(missing))
            except ModuleNotFoundError as missing:  # a package that only some services need
                detail = f"moto needs {missing.name} for it: pip install 'moto[server]'"
                return refuse_operation(request, detail)
            if status.startswith("200") and is_stack_update(request.get_data()):
                update_stack_roles(request.form)
        if headers.get("Content-Type", "").startswith("text/html") and int(status[:3]) >= 400:
            return refuse_operation(request, f"moto answered {status}.")
        return Response(body, status, headers)

    def load_managed_policies(self) -> None:
        """Add AWS's managed policies to the IAM of the current account."""
        with self._lock:
            account_policies.add_managed_policies()


def refuse_operation(request: Request, detail: str, operation: str = "") -> Response:
    """Return a 400 in the service's protocol: botocore retries a 500, and it cannot parse HTML."""
    target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
    operation = operation or target or request.form.get("Action", "")
    operation = operation or f"{request.method} {request.path}"
    message = f"The emulator does not implement {operation}. {detail}".strip()
    log.info(message)  # only info: many clients, like the SDK, try an operation that may be missing
    if "Action" in request.form:  # the query protocol: IAM, STS
        return make_query_error("InvalidAction", message)
    body = {"__type": "UnknownOperationException", "message": message}
    headers = {"x-amzn-errortype": "UnknownOperationException"}
    return Response(json.dumps(body), 400, headers, content_type="application/x-amz-json-1.1")


def make_query_error(code: str, message: str, status: int = 400) -> Response:
    """Return an error response of the query protocol, which IAM and STS use."""
    body = (
        "<ErrorResponse><Error><Type>Sender</Type>"
        f"<Code>{code}</Code><Message>{escape(message)}</Message></Error></ErrorResponse>"
    )
    return Response(body, status, content_type="text/xml")


# Roles of a CloudFormation stack that was updated: moto keeps their old policies and trust.
#
# IAM checks (trainyard.emulator.iam) use these, so they are replaced by those of the template.


def is_stack_update(body: bytes) -> bool:
    """Return whether a request with that body updates a stack, or executes a change set."""
    return b"Action=UpdateStack&" in body or b"Action=ExecuteChangeSet&" in body


def update_stack_roles(form: Mapping[str, str]) -> None:
    """Set the roles of the stack that a request updated to those in its current template.

    The stack is in the account and region of the current thread.
    """
    from moto.cloudformation.models import cloudformation_backends
    from moto.cloudformation.parsing import clean_json

    backend = cloudformation_backends[read_account()][read_region()]
    # A request that names a change set by its ARN need not name the stack.
    stack = form.get("StackName") or backend.change_sets[form["ChangeSetName"]].stack_name
    resources = backend.get_stack(stack).resource_map
    for name, document in resources._resource_json_map.items():
        if document["Type"] == "AWS::IAM::Role":
            role: Any = resources[name]
            properties = clean_json(document["Properties"], resources)
            role.assume_role_policy_document = json.dumps(properties["AssumeRolePolicyDocument"])
            role.permissions_boundary_arn = properties.get("PermissionsBoundary") or None
            role.policies = {
                policy["PolicyName"]: json.dumps(policy["PolicyDocument"])
                for policy in properties.get("Policies", ())
            }
