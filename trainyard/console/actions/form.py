"""The token of a form: which proposal the person has seen. It is signed, so nobody makes one."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from uuid import uuid4

from flask import current_app
from itsdangerous import BadSignature, URLSafeTimedSerializer
from werkzeug.exceptions import Forbidden

LASTS = 12 * 3600
"""Seconds after which a form is refused: nobody remembers what it showed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a form has shown."""

    action: str
    about: Mapping[str, str]
    state: Mapping[str, str]
    typed: Mapping[str, str]
    once: str
    """Differs from that of every other form; two clicks on one have the same."""

    caller: str
    """Who would have done it."""


def token(
    action: str,
    about: Mapping[str, str],
    state: Mapping[str, str],
    typed: Mapping[str, str],
    caller: str,
) -> str:
    """The token of a form that shows this."""
    seen = Seen(
        action=action, about=about, state=state, typed=typed, once=str(uuid4()), caller=caller
    )
    return _signer().dumps(asdict(seen))


def read(token: str, action: str, about: Mapping[str, str]) -> Seen:
    """What the form with that token has shown.

    Raises:
        Forbidden: it is no form of this console, is too old, or is for something else.
    """
    try:
        seen = Seen(**_signer().loads(token, max_age=LASTS))
    except BadSignature:
        raise Forbidden("This form is not, or no longer, one of this console's.") from None
    if (seen.action, seen.about) != (action, dict(about)):
        raise Forbidden("This form is for something else.")
    return seen


def moved(seen: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(what, how it was shown, how it is now) of all that has changed."""
    return [
        (name, seen.get(name, ""), now.get(name, ""))
        for name in dict.fromkeys((*seen, *now))
        if seen.get(name) != now.get(name)
    ]


def _signer() -> URLSafeTimedSerializer:
    assert current_app.secret_key  # app.create sets it
    return URLSafeTimedSerializer(current_app.secret_key, salt="actions")
