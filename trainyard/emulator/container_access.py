"""A container's access to the emulator, as on AWS: credentials of its role, and a route to it."""

import contextlib
from collections.abc import Iterator

from trainyard.emulator.access_keys import Loan
from trainyard.emulator.client_environment import REDIRECT, SDK
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.runtime.install_layer import online
from trainyard.emulator.runtime.isolation import Isolation, choose
from trainyard.emulator.runtime.outbound_network import way
from trainyard.emulator.runtime.proxy import Route


class Access:
    """The access of one container, or of one job on all its nodes."""

    def __init__(self, aws: Aws, loan: Loan) -> None:
        self._aws, self._loan = aws, loan
        self.route = Route(
            aws.url, aws.admit, way() if aws.internet and choose().loopback else None
        )

    def environment(self, isolation: Isolation) -> dict[str, str]:
        """Return variables that lead an AWS client to the emulator, with the role's credentials.

        In an engine's container these are the keys themselves: a client takes none over HTTP from
        an address of its network, and the address for credentials is not there.
        """
        if isolation.url:
            return {
                "AWS_ENDPOINT_URL": isolation.url,
                "AWS_ACCESS_KEY_ID": self._loan.access_key,
                "AWS_SECRET_ACCESS_KEY": self._loan.secret,
                "AWS_SESSION_TOKEN": self._loan.token,
            }
        path, url = self._loan.path, self._aws.url
        uri = {"RELATIVE_URI": path} if isolation.loopback else {"FULL_URI": f"{url}{path}"}
        credentials = {f"AWS_CONTAINER_CREDENTIALS_{name}": value for name, value in uri.items()}
        variables = {"AWS_ENDPOINT_URL": url, "PYTHONPATH": REDIRECT}
        pip = online() if self._aws.internet else {}
        return variables | credentials | SDK | pip


@contextlib.contextmanager
def grant_access(aws: Aws, role: str, is_isolated: bool) -> Iterator[Access | None]:
    """Yield access for a container with that role; its credentials end with the block.

    ``is_isolated``: EnableNetworkIsolation was asked for, so the container gets no access: None.
    """
    if is_isolated:
        yield None
        return
    loan = aws.keys.lend(role)
    try:
        yield Access(aws, loan)
    finally:
        aws.keys.take_back(loan)
