"""Clients of the emulator for its own rooms: a Callback step sends to SQS as any client does."""

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
from trainyard.emulator.request_scope import account, region

_NOTHING_OF_THE_USERS = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
"""Session variables: neither ~/.aws nor the environment may lead a client to the real AWS."""


class Aws:
    """Clients of this emulator, with the administrator's keys. Usable from any thread, once it
    serves.
    """

    def __init__(self, keys: Keys, authority: Authority) -> None:
        self.url = ""
        """URL of the endpoint; empty until it serves."""
        self.keys, self.authority = keys, authority
        self.internet = False
        """True if jobs may reach the internet."""
        self.without_capacity: frozenset[str] = frozenset()
        """Instance types without capacity: their jobs fail as on AWS."""
        self.on_stage: Callable[[str, str, Path], None] = lambda job, host, folder: None  # noqa: E731
        """Called with a job's name, a host, and the folder that the job sees there as /opt/ml, when
        its inputs are complete and before it runs."""
        self._clients: dict[tuple[str, str, str], Any] = {}
        self._lock = threading.Lock()

    def serve(self, url: str, admit: Callable[[socket.socket], None]) -> None:
        """Set the endpoint's ``url``, and ``admit``, which serves connections to a socket."""
        self.url, self._admit = url, admit

    def admit(self, listening: socket.socket) -> None:
        """Serve connections to ``listening``, until it is shut down."""
        self._admit(listening)

    def client(self, service: str) -> Any:
        """Return a boto3-like client: ``client("sqs").send_message(...)``. It lives as long as the
        emulator.

        Its account and region are those that this thread works for.
        """
        key = service, region(), account()
        with self._lock:
            if key not in self._clients:
                access_key, secret, token = self.keys.administrator()
                session = botocore.session.Session(session_vars=_NOTHING_OF_THE_USERS)
                self._clients[key] = session.create_client(
                    service,
                    region_name=key[1],
                    endpoint_url=self.url,
                    aws_access_key_id=access_key,
                    aws_secret_access_key=secret,
                    aws_session_token=token,
                    # No proxy of the user's: it could not reach this machine's loopback.
                    config=Config(proxies={}, ignore_configured_endpoint_urls=True),
                )
            return self._clients[key]
