"""What every room of the emulator shares: the AWS error answer, the account, ARNs."""

from trainyard.emulator.regions import partition, region

ACCOUNT = "123456789012"
"""moto's default account: ARNs of ours and of moto's must agree."""


def make_arn(service: str, resource: str) -> str:
    """``arn:aws:<service>:<region>:<account>:<resource>``, of something made in this region."""
    return f"arn:{partition()}:{service}:{region()}:{ACCOUNT}:{resource}"


class ApiError(Exception):
    """Becomes the AWS error answer of the request that is being served.

    ``code`` is AWS's error code (``ValidationException``, ``NoSuchKey``, ...), ``message`` the
    sentence a person reads, ``status`` the HTTP status (botocore retries 5xx, never 4xx).
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
