"""``worker.Response``, which an ``output_fn`` returns."""

from collections.abc import Mapping
from typing import Any

from sagemaker_containers.beta.framework import content_types  # type: ignore[import-not-found]


class Response:
    """The response of an ``output_fn``, with the arguments of AWS's class of the same name.

    It has the attributes of flask.Response that the server reads, so a script may return either.
    """

    def __init__(
        self,
        response: Any = None,
        accept: str | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        mimetype: str | None = None,
        direct_passthrough: bool = False,
    ) -> None:
        """``accept`` and ``direct_passthrough`` have no effect; AWS ignores ``accept``, too."""
        self.response, self.status_code = response, int(status)
        self.headers = dict(headers or {})
        header = {name.lower(): value for name, value in self.headers.items()}.get("content-type")
        self.content_type = content_type(mimetype or content_types.JSON)
        if header and not mimetype:
            self.content_type = header

    def get_data(self) -> bytes:
        """Return the body. Raises TypeError if it is neither text nor bytes, nor an iterable of
        these.
        """
        if self.response is None:
            return b""
        is_body = isinstance(self.response, str | bytes | bytearray)
        parts = [self.response] if is_body else list(self.response)
        return b"".join(part.encode() if isinstance(part, str) else bytes(part) for part in parts)


def content_type(mimetype: str) -> str:
    """Return the Content-Type header for ``mimetype``. As in werkzeug, text types get a charset."""
    is_text = mimetype.startswith("text/") and "charset" not in mimetype
    return f"{mimetype}; charset=utf-8" if is_text else mimetype


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"{__name__}.{name} is not provided outside AWS's image: only Response is, since the "
        "server itself handles requests"
    )
