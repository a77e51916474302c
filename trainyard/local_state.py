"""The state that trainyard run left here, for reading verbs where no AWS is configured.

Apart: verbs ask it before they import anything heavy.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import botocore.session
from botocore.exceptions import BotoCoreError

from trainyard.common.errors import EmulatorError, ServiceError
from trainyard.terminal import errors

STATE = Path(".trainyard/aws")
"""Default folder in which trainyard run and trainyard emulator keep all state."""


@contextmanager
def serve_local_state() -> Iterator[None]:
    """Look at this folder's state during the block, if there is one and no AWS is configured: at
    the emulator that serves it now, such as trainyard run in another shell, else at one of its own.

    It also decorates verbs, but only those that change nothing: a change meant for AWS must not
    happen here.

    Raises:
        ServiceError: the state cannot be served.
    """
    with ExitStack() as stack:
        if (STATE / "s3").is_dir() and not _is_configured():
            from trainyard.emulator.client_environment import (
                apply_environment,
                environment_of_running,
            )

            try:
                environment = environment_of_running(STATE)
                if environment is None:
                    # It loads moto, which takes half a second.
                    from trainyard.emulator.server import serve

                    environment = stack.enter_context(serve(STATE)).env
            except EmulatorError as error:
                raise ServiceError(
                    f"no AWS is configured, and {STATE} cannot be looked at: {error}"
                ) from None
            errors.print(f"no AWS is configured: this looks at {STATE}", highlight=False)
            stack.enter_context(apply_environment(environment))
        yield


def _is_configured() -> bool:
    """Return whether boto3 knows an endpoint, or has credentials; expired ones count."""
    session = botocore.session.Session()
    try:
        profile = session.get_scoped_config()
        endpoint_variables = {name for name in os.environ if name.startswith("AWS_ENDPOINT_URL")}
        return bool(endpoint_variables or "endpoint_url" in profile or session.get_credentials())
    except BotoCoreError:
        # A configuration with a fault is one, too: whoever uses it is told of the fault.
        return True
