"""Clients with which the emulator calls its own services, as any client does.

For example, a Callback step sends a message to SQS.
"""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config

from trainyard.emulator.iam.access_keys import Keys
from trainyard.emulator.iam.authority import Authority
from trainyard.emulator.request_scope import read_account, read_region

_NOTHING_OF_THE_USERS = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
"""Session variables that ignore ~/.aws and the environment, which could name the real AWS."""


class Aws:
    """Clients of this emulator, with the administrator's keys.

    They can be used from any thread, as soon as the emulator serves.
    """

    def __init__(self, keys: Keys, authority: Authority) -> None:
        self.url = ""
        """URL of the endpoint; empty until the emulator serves."""
        self.keys, self.authority = keys, authority
        self.internet = False
        """Whether jobs can reach the internet."""
        self.without_capacity: frozenset[str] = frozenset()
        """Instance types without capacity: jobs on them fail as on AWS."""
        self.on_stage: Callable[[str, str, Path], None] = lambda job, host, folder: None  # noqa: E731
        """Function that is called when a job's inputs are complete, before the job runs.

        It gets the job's name, the host, and the folder that the job sees there as /opt/ml."""
        self._clients: dict[tuple[str, str, str], Any] = {}
        self._lock = threading.Lock()

    def set_endpoint(self, url: str, admit: Callable[[socket.socket], None]) -> None:
        """Set the endpoint's ``url``, and the function ``admit``, which serves the connections
        to a socket.
        """
        self.url, self._admit = url, admit

    def serve_socket(self, listening: socket.socket) -> None:
        """Serve the connections to the socket ``listening`` until it is shut down."""
        self._admit(listening)

    def make_client(self, service: str) -> Any:
        """Return a botocore client: ``make_client("sqs").send_message(...)``.

        It uses the account and the region of the current thread. It can be used as long as the
        emulator runs.
        """
        key = service, read_region(), read_account()
        with self._lock:
            if key not in self._clients:
                access_key, secret, token = self.keys.find_administrator_key()
                session = botocore.session.Session(session_vars=_NOTHING_OF_THE_USERS)
                self._clients[key] = session.create_client(
                    service,
                    region_name=key[1],
                    endpoint_url=self.url,
                    aws_access_key_id=access_key,
                    aws_secret_access_key=secret,
                    aws_session_token=token,
                    # Without the user's proxy, which could not reach this machine's loopback.
                    config=Config(proxies={}, ignore_configured_endpoint_urls=True),
                )
            return self._clients[key]
