"""Pages that follow what they show: fragments of HTML, sent again when they have changed.

A live page is made of named fragments. The browser gets them with the page; then it listens at
``/events`` and says which pages are open. Each open page's stamp is looked at again after
``seconds``, and when it has changed the fragments are made anew, once for however many browsers
have the page open, and those whose HTML differs are sent. All tabs of a browser share one
connection, of which HTTP/1.1 has six to a server.
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
    """A fragment that only grows at its end: browsers are sent the items that they lack."""

    epoch: str
    """What numbers the items; when it changes the page is loaded anew."""
    items: Sequence[tuple[int, Callable[[], str]]]
    """(number, what makes its HTML), the newest last: a page shows these when it is opened, and a
    look makes those that are new. A number is greater than the one before; where one is left out,
    an item is missing."""
    above: str = ""
    """HTML that stands before them as the page is opened, and stays as it is."""


Fragments = Mapping[str, str | Growing]
"""Element's id → the HTML inside it."""

PING = 15
"""Seconds of silence after which a comment is sent: whoever has gone is noticed by that."""

MOST_WAITING = 1_000
"""Messages that a browser may be behind; one that is farther behind connects anew."""

UNSEEN = 10.0
"""Seconds between two looks at a page that is open behind others only."""

LAST_LOOK = 5.0
"""Seconds that a console which ends waits for the look that is under way: AWS may be slow."""

REST = 12
"""Times the CPU seconds of a round that the next one waits: whatever is open, following it takes at
most 1/13 of a core."""


@dataclass(frozen=True, slots=True)
class View:
    """How a live page is made, from the variables of its address and ``flask.request.args``."""

    fragments: Callable[..., Fragments]
    stamp: Callable[..., Hashable]
    """Differs when the fragments may have changed; asked often, so it should cost little. None:
    they change no more."""


def page(
    blueprint: Blueprint, rule: str, *, template: str, stamp: Callable[..., Hashable]
) -> Callable[[Callable[..., Fragments]], Callable[..., Fragments]]:
    """Serve a function's fragments at ``rule`` in ``template``, and follow them.

    The template extends ``page.html.j2`` and has ``{{ live("id") }}`` for each fragment, or
    ``{{ still("id") }}`` for one that stays as it is, such as a form in which somebody types; it
    gets the variables of the address, too.
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
    """A page that at least one browser has open."""

    streams: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    """Those of the streams in whose browser somebody sees it."""
    until: float = 0.0
    """When it is looked at again if nobody does (``time.monotonic``)."""
    stamp: Hashable = None
    sent: dict[str, str | int] = field(default_factory=dict)
    """Fragment → digest of what every stream has; number of the last item of one that grows."""


class Hub:
    """What is open in the browsers, and what they were told of it."""

    def __init__(self, app: Flask, seconds: float, ended: threading.Event | None = None) -> None:
        """``seconds``: between two looks; ``ended``: set when nothing is followed any more."""
        self._app, self._seconds = app, seconds
        self._ended = ended or threading.Event()
        self._streams: dict[str, queue.Queue[str | None]] = {}
        self._followed: dict[str, _Followed] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def stream(self, name: str) -> Iterator[str]:
        """Server-sent events for one browser, until it goes."""
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
        """That browser shows the pages whose value is true, and has closed those where it is false.

        ``hidden`` says that all its tabs with that page are behind others.

        Raises:
            NotFound: no such stream is open; or no live page has an address among ``topics``.
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
        """End the streams, and what follows for them: from now on nobody is asked anything."""
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
        """Look at every open page, again and again; rarely at those that nobody sees."""
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
        except Exception:  # the edge of a thread: one page's defect must not end all the others'
            log.exception("%s cannot be followed", topic)
            return
        for name, told in changed.items():
            message = {"topic": topic, "id": name, **told}
            self._send(followed, f"data: {json.dumps(message)}\n\n")

    def _changed(self, topic: str, followed: _Followed) -> dict[str, dict[str, Any]]:
        """Fragment → what browsers are told of it."""
        view, where = self._view(topic)
        with self._app.test_request_context(topic):
            stamp = view.stamp(**where)
            if stamp is None or (stamp == followed.stamp and followed.sent):
                return {}
            found = view.fragments(**where)
        with self._lock:
            known, followed.stamp = followed.sent, stamp
            told = {name: _told(one, known.get(name)) for name, one in found.items()}
            followed.sent = {n: has for n, (has, _) in told.items()}
            return {n: message for n, (_, message) in told.items() if message}

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
            raise NotFound(f"{topic} is no live page")
        return view, where


def _told(one: str | Growing, had: str | int | None) -> tuple[str | int, dict[str, Any] | None]:
    """What browsers have then, and what they are told: None where they have it already."""
    if isinstance(one, Growing):
        known = had if isinstance(had, int) else 0
        items = [(number, made()) for number, made in one.items if number > known]
        last = one.items[-1][0] if one.items else 0
        return last, {"epoch": one.epoch, "items": items} if items else None
    digest = _digest(one)
    return digest, {"digest": digest, "html": one} if digest != had else None


def _end(waiting: "queue.Queue[str | None]") -> None:
    """End that stream; what waits in it is not sent."""
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
    """Changed fragments of the pages that this stream follows."""
    messages = current_app.extensions["trainyard-hub"].stream(stream)
    return Response(messages, content_type="text/event-stream")


@events.post("/events/<stream>")
def follow(stream: str) -> tuple[str, int]:
    """Pages that were opened (true) or closed (false): a JSON object by address."""
    topics = request.get_json()
    current_app.extensions["trainyard-hub"].follow(stream, topics)
    return "", 204
