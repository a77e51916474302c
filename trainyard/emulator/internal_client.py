"""The emulator as an AWS that its own rooms call: a Callback step sends to SQS like anybody."""

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import botocore.session
from botocore.config import Config

from trainyard.emulator.access_keys import Keys
from trainyard.emulator.regions import region

_NOTHING_OF_THE_USERS = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
"""Session variables: neither ~/.aws nor the environment may lead a client to the real AWS."""


class Aws:
    """Clients of this very emulator, with its own keys. From any thread, once it serves."""

    def __init__(self, keys: Keys) -> None:
        self.url = ""
        """Where the endpoint is; empty until it serves."""
        self.keys = keys
        self.internet = False
        """Whether jobs may go out to it."""
        self.without_capacity: frozenset[str] = frozenset()
        """Instance types of which there are none now: their jobs fail as AWS's do then."""
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def serve(self, url: str, admit: Callable[[socket.socket], None]) -> None:
        """From now on the endpoint is at ``url``. ``admit``: answers who connects to a socket."""
        self.url, self._admit = url, admit

    def admit(self, listening: socket.socket) -> None:
        """Answers who connects to ``listening``, until it is shut down."""
        self._admit(listening)

    def client(self, service: str) -> Any:
        """A boto3-like client: ``client("sqs").send_message(...)``, as long as the emulator.

        It is of the region that this thread works for.
        """
        key = service, region()
        with self._lock:
            if key not in self._clients:
                session = botocore.session.Session(session_vars=_NOTHING_OF_THE_USERS)
                self._clients[key] = session.create_client(
                    service,
                    region_name=key[1],
                    endpoint_url=self.url,
                    aws_access_key_id=self.keys.own[0],
                    aws_secret_access_key=self.keys.own[1],
                    config=Config(proxies={}, ignore_configured_endpoint_urls=True),
                )
            return self._clients[key]
