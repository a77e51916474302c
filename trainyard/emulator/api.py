"""Definitions that every room of the emulator shares: the AWS error answer, the account, ARNs."""

from trainyard.emulator.regions import partition, region

ACCOUNT = "123456789012"
"""Account number: moto's default, since our ARNs and moto's must agree."""


def make_arn(service: str, resource: str) -> str:
    """Return ``arn:aws:<service>:<region>:<account>:<resource>`` for the current region."""
    return f"arn:{partition()}:{service}:{region()}:{ACCOUNT}:{resource}"


class ApiError(Exception):
    """An error that becomes the AWS error answer of the current request.

    ``code`` is AWS's error code (``ValidationException``, ``NoSuchKey``, ...), ``message`` the
    sentence for people, ``status`` the HTTP status (botocore retries 5xx, never 4xx).
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
