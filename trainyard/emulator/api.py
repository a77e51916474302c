"""Definitions that every room of the emulator shares: the AWS error answer, ARNs."""

from trainyard.emulator.request_scope import account, partition, region


def make_arn(service: str, resource: str) -> str:
    """Return ``arn:aws:<service>:<region>:<account>:<resource>`` of the current account and
    region.
    """
    return f"arn:{partition()}:{service}:{region()}:{account()}:{resource}"


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

    @property
    def fault(self) -> str:
        """Return whose fault it is, in the words that a job's FailureReason begins with."""
        return "InternalServerError" if self.status >= 500 else "ClientError"


class S3Error(ApiError):
    """An error of S3 with elements in its document besides the message, or with headers."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int = 400,
        *,
        fields: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(code, message, status)
        self.fields = fields or {}
        self.headers = headers or {}
