"""What trainyard run left in this folder, for verbs that look and where no AWS is configured."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import botocore.session
from botocore.exceptions import BotoCoreError

from trainyard.common.errors import EmulatorError, ServiceError
from trainyard.terminal import errors

STATE = Path(".trainyard/aws")
"""Where trainyard run and trainyard emulator keep everything, unless told otherwise."""


@contextmanager
def served() -> Iterator[None]:
    """Serve this folder's state while the block runs, where there is one and no AWS is configured.

    It decorates verbs, too, but only those that change nothing: what is meant to change something
    on AWS must not change something here.

    Raises:
        ServiceError: the state cannot be served; another emulator may have it.
    """
    with ExitStack() as stack:
        if (STATE / "s3").is_dir() and not _is_configured():
            # moto and all behind it, which nothing else needs
            from trainyard.emulator.client_environment import applied
            from trainyard.emulator.server import serve

            try:
                endpoint = stack.enter_context(serve(STATE))
            except EmulatorError as error:
                raise ServiceError(
                    f"no AWS is configured, and {STATE} cannot be looked at: {error}. Where "
                    "trainyard emulator serves it, give this shell the lines that it printed"
                ) from None
            errors.print(f"no AWS is configured: this looks at {STATE}", highlight=False)
            stack.enter_context(applied(endpoint.env))
        yield


def _is_configured() -> bool:
    """Whether boto3 knows an endpoint, or has credentials; expired ones count."""
    session = botocore.session.Session()
    try:
        profile = session.get_scoped_config()
        named = {name for name in os.environ if name.startswith("AWS_ENDPOINT_URL")}
        return bool(named or "endpoint_url" in profile or session.get_credentials())
    except BotoCoreError:
        return True
