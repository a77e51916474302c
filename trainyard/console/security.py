"""Access to the console: only browsers on this machine that were given the address with the key.

The key comes once, in the address that ``trainyard console`` prints, and is kept as a cookie, so
that an address copied from the browser contains no secret. A page of another site has no access:
its Origin is refused, and the cookie is not sent with its requests.
"""

import hashlib
import hmac
import os
import secrets
from urllib.parse import urlsplit

from flask import Flask, Request, redirect, request
from werkzeug.exceptions import Forbidden
from werkzeug.wrappers import Response

HOSTS = ("127.0.0.1", "localhost")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; worker-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # no-referrer would make forms send Origin: null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def key_of_emulator() -> str:
    """Return the key of a console beside an emulator, made from its secret, so that bookmarks last.

    Against AWS it is random, and new at every start.
    """
    host = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname
    secret = os.environ.get("AWS_SECRET_ACCESS_KEY", "")
    if host not in HOSTS or not secret:
        return secrets.token_urlsafe(24)
    return hmac.new(secret.encode(), b"trainyard console", hashlib.sha256).hexdigest()[:40]


def guard(app: Flask, key: str) -> None:
    """Refuse requests without ``key``, for a foreign host or from a foreign page, with status 403.

    ``key``: required value of the query parameter of that name, once for each browser.
    """

    @app.before_request
    def admit() -> Response | None:
        _refuse_foreign(request)
        cookie = f"trainyard-{request.host.rpartition(':')[2]}"  # cookies are not separated by port
        mine = hmac.new(key.encode(), cookie.encode(), hashlib.sha256).hexdigest()
        if hmac.compare_digest(request.args.get("key", "").encode(), key.encode()):
            answer = redirect(_without_key(request))
            answer.set_cookie(cookie, mine, httponly=True, samesite="Strict")
            return answer
        if not hmac.compare_digest(request.cookies.get(cookie, "").encode(), mine.encode()):
            raise Forbidden("Open the address that trainyard console printed: it has the key.")
        return None

    @app.after_request
    def closed(answer: Response) -> Response:
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer


def _refuse_foreign(asked: Request) -> None:
    if urlsplit(f"//{asked.host}").hostname not in HOSTS:
        raise Forbidden(f"Only this machine is served, not {asked.host}.")
    origin = asked.headers.get("Origin")
    if origin not in (None, asked.host_url.rstrip("/")):
        raise Forbidden(f"Pages of {origin} are not served.")
    if asked.method not in ("GET", "HEAD") and origin is None:
        raise Forbidden("Only the console's own pages may change something.")


def _without_key(asked: Request) -> str:
    rest = "&".join(part for part in asked.query_string.decode().split("&") if part[:4] != "key=")
    return f"{asked.path}?{rest}" if rest else asked.path
