"""Which method answers which request: each operation registers itself where it is written."""

from collections.abc import Callable
from typing import Any, Literal

from werkzeug import Request, Response

Answer = Callable[[Any, Request, str, str], Response]
"""A method that gets the request, its bucket and its key: an empty text where there is none."""
Level = Literal["service", "bucket", "object"]

ROUTES: dict[tuple[Level, str, str], Answer] = {}
_SUBRESOURCES = frozenset(
    "accelerate acl analytics attributes cors delete encryption intelligent-tiering inventory "
    "legal-hold lifecycle location logging metrics notification object-lock ownershipControls "
    "policy policyStatus publicAccessBlock replication requestPayment restore retention select "
    "tagging torrent uploadId uploads versioning versions website".split()
)
"""What S3 takes from a query to be another thing than the bucket or object itself."""


def operation(level: Level, method: str, *subs: str) -> Callable[[Answer], Answer]:
    """Registers what answers ``method`` there: on these sub-resources, or on the thing itself.

    Raises ValueError when another does already.
    """

    def register(answer: Answer) -> Answer:
        for sub in subs or ("",):
            if ROUTES.setdefault((level, method, sub), answer) is not answer:
                raise ValueError(f"{method} ?{sub} on a {level} is answered twice")
        return answer

    return register


def find(level: Level, request: Request) -> Answer | None:
    """What answers the request; None where nothing does."""
    return ROUTES.get((level, request.method, sub_of(request)))


def sub_of(request: Request) -> str:
    """The sub-resource that the query names, or an empty text."""
    return next((name for name in request.args if name in _SUBRESOURCES), "")
