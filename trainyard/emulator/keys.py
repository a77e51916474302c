"""The access keys that count, with their secrets: the state directory's own, and those that moto
hands out for it (AssumeRole, CreateAccessKey), which end with the emulator."""

import json
import re
import secrets
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.common.whole_file import Draft

FILE = "credentials.json"
_GIVES = re.compile(r"Action=(AssumeRole\w*|CreateAccessKey)(&|$)")
_GIVEN = re.compile(r"<(AccessKeyId|SecretAccessKey)>([^<]+)</")


class Keys:
    """``own`` is a random access key and its secret, kept in a file that its owner alone reads."""

    def __init__(self, state: Path) -> None:
        path = state / FILE
        self.own: tuple[str, str] = _read(path) if path.exists() else _make(path)
        self._secrets = dict([self.own])

    def secret(self, access_key: str) -> str | None:
        """None where the access key is nobody's."""
        return self._secrets.get(access_key)

    def note(self, request: bytes, answer: bytes) -> None:
        """Remembers the key that moto's ``answer`` to the form ``request`` hands out, if it does.

        Not those of GetSessionToken: moto gives everybody the one of AWS's documentation.
        """
        if _GIVES.search(request.decode("latin-1")):
            given = dict(_GIVEN.findall(answer.decode("latin-1")))
            if {"AccessKeyId", "SecretAccessKey"} <= given.keys():
                self._secrets[given["AccessKeyId"]] = given["SecretAccessKey"]


def _make(path: Path) -> tuple[str, str]:
    """20 and 40 characters, as AWS's have."""
    own = f"TRAINYARD{secrets.token_hex(6).upper()[:11]}", secrets.token_urlsafe(30)
    with Draft(path, mode=0o600) as file:
        file.write(json.dumps({"AccessKeyId": own[0], "SecretAccessKey": own[1]}).encode())
    return own


def _read(path: Path) -> tuple[str, str]:
    """Raises EmulatorError where others could have read it: it is no secret then."""
    if path.stat().st_mode & 0o077:
        raise EmulatorError(
            f"{path} is open to others (mode {path.stat().st_mode & 0o777:o}), and holds the "
            "secret that lets its owner run code here: remove it, and a new one is made"
        )
    kept = json.loads(path.read_text())
    return kept["AccessKeyId"], kept["SecretAccessKey"]
