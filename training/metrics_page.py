"""/metrics of a training in Prometheus' text, served by rank 0 where the recipe asks for it.

On this machine's loopback, unless TRAINYARD_METRICS_HOST names another address: an exported
manifest names the pod's own, which is reached from the cluster's network alone. It is read-only,
says numbers and names of metrics, and takes no part in the training: a thread answers with the
last metric line.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trainyard.common.errors import TrainingError
from trainyard.common.measures import CONTENT_TYPE, OF_TRAINING, Measure, Sample, text

log = logging.getLogger(__name__)

HOST = "TRAINYARD_METRICS_HOST"
PATH = "/metrics"


class MetricsPage:
    """A tracker (``training.trackers``) that others come to.

    Args:
        port: 0 is any free one; ``address`` says which.
    """

    def __init__(self, port: int) -> None:
        self._port, self._last = port, dict[str, float]()
        self._spoken: Counter[str] = Counter()
        self._server: ThreadingHTTPServer | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are served."""
        assert self._server is not None  # noqa: S101 (after ``begin``)
        return str(self._server.server_address[0]), int(self._server.server_address[1])

    def begin(self, step: int, history: Sequence[Mapping[str, float]]) -> None:
        """Serve from now on.

        Raises:
            TrainingError: the port is in use, or the address is not this machine's.
        """
        for line in history:
            self.log(line)
        host = os.environ.get(HOST, "127.0.0.1")
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == PATH
                body = page.text().encode() if found else b"it is at /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: the log is the training's."""

        try:
            self._server = ThreadingHTTPServer((host, self._port), Handler)
        except OSError as error:
            raise TrainingError(
                f"metrics_port {self._port}: cannot serve on {host}: {error}; choose another port, "
                "or 0 for none"
            ) from None
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        log.info("metrics on http://%s:%d%s", *self.address, PATH)

    def log(self, metrics: Mapping[str, float]) -> None:
        """The newest line; of one of a rule that it has spoken once more."""
        self._last = self._last | dict(metrics)
        self._spoken.update(name for name in metrics if name.startswith("watch."))

    def close(self, *, failed: bool) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def text(self) -> str:
        """The answer."""
        last = self._last | dict(self._spoken)
        return text((measure, _samples(measure, last)) for measure in OF_TRAINING)


def _samples(measure: Measure, last: Mapping[str, float]) -> list[Sample]:
    return [
        Sample(source.labels, last[source.key] * source.scale)
        for source in measure.sources
        if source.key in last
    ]
