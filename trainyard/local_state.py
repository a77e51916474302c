"""Let read-only commands use the state that ``trainyard run`` left in the current folder, if AWS
is not configured.

This is a separate module because commands use it before they import anything that takes long.
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
"""Default folder of the state of ``trainyard run`` and ``trainyard emulator``."""


@contextmanager
def serve_local_state() -> Iterator[None]:
    """Make boto3 use the state in the current folder during the block, if there is one and AWS is
    not configured.

    Use the emulator that serves the state now, such as that of ``trainyard run`` in another shell;
    if none does, start one for the block. This is also used as a decorator of commands, but only of
    those that change nothing, because a change that is meant for AWS must not happen here.

    Raises:
        ServiceError: the state cannot be served.
    """
    with ExitStack() as stack:
        if (STATE / "s3").is_dir() and not _is_configured():
            from trainyard.emulator.client_environment import (
                apply_environment,
                find_running_environment,
            )

            try:
                environment = find_running_environment(STATE)
                if environment is None:
                    # Imported only if it is needed: it loads moto, which takes half a second.
                    from trainyard.emulator.server import serve_emulator

                    environment = stack.enter_context(serve_emulator(STATE)).env
            except EmulatorError as error:
                raise ServiceError(
                    f"AWS is not configured, and the state in {STATE} cannot be used: {error}"
                ) from None
            errors.print(f"AWS is not configured: using the state in {STATE}", highlight=False)
            stack.enter_context(apply_environment(environment))
        yield


def _is_configured() -> bool:
    """Return whether boto3 is configured with an endpoint or credentials, even expired ones."""
    session = botocore.session.Session()
    try:
        profile = session.get_scoped_config()
        endpoint_variables = {name for name in os.environ if name.startswith("AWS_ENDPOINT_URL")}
        return bool(endpoint_variables or "endpoint_url" in profile or session.get_credentials())
    except BotoCoreError:
        # An invalid configuration counts as well, so that its error is reported when it is used.
        return True
