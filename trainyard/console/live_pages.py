"""Live pages: fragments of HTML that are sent again when they have changed.

A live page is made of named fragments. The browser gets them with the page; then it listens at
``/events`` and reports which pages are open. The stamp of each open page is checked every
``seconds``. If it has changed, the fragments are made again, once for all browsers that have the
page open, and those whose HTML differs are sent. All tabs of a browser share one connection, since
HTTP/1.1 browsers allow six per server.
"""

import hashlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import Blueprint, Flask, Response, current_app, render_template, request
from markupsafe import Markup
from werkzeug.exceptions import HTTPException, NotFound

from trainyard.common.errors import TrainyardError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Growing:
    """A fragment that only grows at its end: browsers get the items that they lack."""

    epoch: str
    """Id of the numbering of items; when it changes, browsers load the page again."""
    items: Sequence[tuple[int, Callable[[], str]]]
    """(number, function that makes its HTML), the newest last: a page shows these when it is
    opened, and each check makes the new ones. Numbers increase; a gap means that an item is
    missing."""
    above: str = ""
    """HTML before the items when the page is opened; it does not change."""


Fragments = Mapping[str, str | Growing]
"""Id of an element → HTML inside it."""

PING = 15
"""Seconds of silence after which a comment is sent, to notice closed connections."""

MOST_WAITING = 1_000
"""Most messages that a browser may be behind; beyond that it must connect again."""

UNSEEN = 10.0
"""Seconds between checks of a page that is open only in hidden tabs."""

LAST_LOOK = 5.0
"""Seconds that an ending console waits for a running check: AWS may be slow."""

REST = 12
"""Ratio of the pause after a round to its CPU seconds: following pages takes at most 1/13 of a
core."""


@dataclass(frozen=True, slots=True)
class View:
    """The functions of a live page, called with the variables of its address and
    ``flask.request.args``.
    """

    fragments: Callable[..., Fragments]
    stamp: Callable[..., Hashable]
    """Returns a value that changes when the fragments may have changed; called often, so it should
    be cheap. None: they never change again."""


def page(
    blueprint: Blueprint, rule: str, *, template: str, stamp: Callable[..., Hashable]
) -> Callable[[Callable[..., Fragments]], Callable[..., Fragments]]:
    """Serve a function's fragments at ``rule`` in ``template``, and follow them.

    The template extends ``page.html.j2`` and has ``{{ live("id") }}`` for each fragment, or ``{{
    still("id") }}`` for one that must not be replaced, such as a form being filled in; it also gets
    the variables of the address.
    """

    def serve(fragments: Callable[..., Fragments]) -> Callable[..., Fragments]:
        def answer(**where: str) -> str:
            is_followed = stamp(**where) is not None
            return _whole(template, fragments(**where), where, is_followed)

        blueprint.add_url_rule(rule, fragments.__name__, answer)
        name = f"{blueprint.name}.{fragments.__name__}"
        blueprint.record(lambda setup: _views(setup.app).update({name: View(fragments, stamp)}))
        return fragments

    return serve


def _views(app: Any) -> dict[str, View]:
    found: dict[str, View] = app.extensions.setdefault("trainyard-views", {})
    return found


def _whole(template: str, found: Fragments, where: Mapping[str, str], is_followed: bool) -> str:
    def live(name: str) -> Markup:
        if isinstance(one := found[name], Growing):
            return _grown(name, one)
        inner = Markup(one)  # made by a template, which has escaped it
        return Markup('<div id="{}" data-live="{}">{}</div>').format(name, _digest(inner), inner)

    def still(name: str) -> Markup:
        return Markup(str(found[name]))

    topic = request.full_path.rstrip("?") if is_followed else ""
    return render_template(template, live=live, still=still, topic=topic, **where)


def _grown(name: str, one: Growing) -> Markup:
    inner = Markup("").join(Markup(made()) for _, made in one.items)  # escaped, too
    last = one.items[-1][0] if one.items else 0
    return Markup('{}<div id="{}" data-epoch="{}" data-last="{}">{}</div>').format(
        Markup(one.above), name, one.epoch, last, inner
    )


def _digest(html: str) -> str:
    return hashlib.sha256(html.encode()).hexdigest()[:12]


@dataclass(slots=True)
class _Followed:
    """A page that is open in at least one browser."""

    streams: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    """Streams in whose browsers the page is visible."""
    until: float = 0.0
    """Time of the next check if it is hidden everywhere (``time.monotonic``)."""
    stamp: Hashable = None
    sent: dict[str, str | int] = field(default_factory=dict)
    """Fragment → digest known to every stream; for a growing one, number of the last item."""


class Hub:
    """The pages open in browsers, and the fragments sent to them."""

    def __init__(self, app: Flask, seconds: float, ended: threading.Event | None = None) -> None:
        """``seconds``: time between two checks; ``ended``: set when nothing is followed any
        more.
        """
        self._app, self._seconds = app, seconds
        self._ended = ended or threading.Event()
        self._streams: dict[str, queue.Queue[str | None]] = {}
        self._followed: dict[str, _Followed] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def stream(self, name: str) -> Iterator[str]:
        """Iterate over server-sent events for one browser, until it disconnects."""
        waiting: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        with self._lock:
            self._streams[name] = waiting
        try:
            yield "retry: 1000\n\n"  # milliseconds until a browser asks again
            while (message := _next(waiting)) is not None:
                yield message
        finally:
            self._forget(name, waiting)

    def follow(self, name: str, topics: Mapping[str, bool | str]) -> None:
        """Record that a browser shows the pages whose value is true, and has closed the others.

        ``hidden`` as value means that all its tabs with that page are hidden.

        Raises:
            NotFound: no such stream is open, or an address in ``topics`` is not a live page's.
        """
        for topic in topics:
            self._view(topic)
        with self._lock:
            if name not in self._streams:
                raise NotFound("this stream has ended")
            for topic, state in topics.items():
                followed = self._followed.setdefault(topic, _Followed())
                followed.streams.discard(name)
                followed.seen.discard(name)
                if state:
                    followed.streams.add(name)
                    followed.seen |= {name} if state != "hidden" else set()
                    followed.stamp, followed.sent = None, {}  # all of it: it may have missed some
                    followed.until = 0.0
            self._drop_unread()
            if self._thread is None and self._followed:
                self._thread = threading.Thread(target=self._watch, name="following", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the streams, and all checks for them."""
        self._ended.set()
        with self._lock:
            thread = self._thread
            for waiting in self._streams.values():
                _end(waiting)
        if thread is not None:
            thread.join(LAST_LOOK)

    def _forget(self, name: str, waiting: queue.Queue[str | None]) -> None:
        with self._lock:
            if self._streams.get(name) is not waiting:
                return  # the browser has connected anew, under the same name
            del self._streams[name]
            for followed in self._followed.values():
                followed.streams.discard(name)
                followed.seen.discard(name)
            self._drop_unread()

    def _drop_unread(self) -> None:
        self._followed = {topic: one for topic, one in self._followed.items() if one.streams}

    def _watch(self) -> None:
        """Check all open pages, repeatedly; hidden pages rarely."""
        while not self._ended.is_set():
            used = time.thread_time()
            with self._lock:
                topics = list(self._followed.items())
                if not topics:
                    self._thread = None
                    return
            for topic, followed in topics:
                if self._ended.is_set():
                    return
                if followed.seen or time.monotonic() >= followed.until:
                    self._look(topic, followed)
                    followed.until = time.monotonic() + UNSEEN
            # A round that began while the last one's answers are still good would see nothing new.
            self._ended.wait(max(self._seconds, REST * (time.thread_time() - used)))

    def _look(self, topic: str, followed: _Followed) -> None:
        try:
            changed = self._changed(topic, followed)
        except (TrainyardError, HTTPException) as error:
            log.warning("%s is not followed this time: %s", topic, error)
            return
        except Exception:  # the edge of a thread: one page's defect must not stop the others
            log.exception("%s cannot be followed", topic)
            return
        for name, update in changed.items():
            message = {"topic": topic, "id": name, **update}
            self._send(followed, f"data: {json.dumps(message)}\n\n")

    def _changed(self, topic: str, followed: _Followed) -> dict[str, dict[str, Any]]:
        """Return fragment → message for the browsers."""
        view, where = self._view(topic)
        with self._app.test_request_context(topic):
            stamp = view.stamp(**where)
            if stamp is None or (stamp == followed.stamp and followed.sent):
                return {}
            found = view.fragments(**where)
        with self._lock:
            known, followed.stamp = followed.sent, stamp
            updates = {name: _update(one, known.get(name)) for name, one in found.items()}
            followed.sent = {n: has for n, (has, _) in updates.items()}
            return {n: message for n, (_, message) in updates.items() if message}

    def _send(self, followed: _Followed, message: str) -> None:
        with self._lock:
            for name in followed.streams:
                waiting = self._streams[name]
                if waiting.full():  # the browser connects anew
                    _end(waiting)
                else:
                    waiting.put_nowait(message)

    def _view(self, topic: str) -> tuple[View, Mapping[str, Any]]:
        adapter = self._app.url_map.bind("")
        endpoint, where = adapter.match(topic.partition("?")[0])
        if (view := _views(self._app).get(endpoint)) is None:
            raise NotFound(f"{topic} is not a live page")
        return view, where


def _update(one: str | Growing, had: str | int | None) -> tuple[str | int, dict[str, Any] | None]:
    """Return the browsers' new state of a fragment, and the message for them; None if they have
    it.
    """
    if isinstance(one, Growing):
        known = had if isinstance(had, int) else 0
        items = [(number, made()) for number, made in one.items if number > known]
        last = one.items[-1][0] if one.items else 0
        return last, {"epoch": one.epoch, "items": items} if items else None
    digest = _digest(one)
    return digest, {"digest": digest, "html": one} if digest != had else None


def _end(waiting: "queue.Queue[str | None]") -> None:
    """End the stream; its waiting messages are not sent."""
    with waiting.mutex:
        waiting.queue.clear()
    waiting.put_nowait(None)


def _next(waiting: "queue.Queue[str | None]") -> str | None:
    try:
        return waiting.get(timeout=PING)
    except queue.Empty:
        return ": still here\n\n"


events = Blueprint("events", __name__)


@events.get("/events/<stream>")
def listen(stream: str) -> Response:
    """Stream changed fragments of the pages that this stream follows."""
    messages = current_app.extensions["trainyard-hub"].stream(stream)
    return Response(messages, content_type="text/event-stream")


@events.post("/events/<stream>")
def follow(stream: str) -> tuple[str, int]:
    """Record pages that were opened (true) or closed (false): a JSON object by address."""
    topics = request.get_json()
    current_app.extensions["trainyard-hub"].follow(stream, topics)
    return "", 204
