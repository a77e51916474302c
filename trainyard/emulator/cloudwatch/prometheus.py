"""The emulator's metrics in Prometheus' format: GET /metrics with a token made from the secret.

The samples come from CloudWatch's store, so both agree, also after a restart. Data older than the
store's retention are gone, and then a counter falls: Prometheus takes that for a restart.
"""

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Iterable, Iterator

from werkzeug import Request, Response

from trainyard.common.measures import CONTENT_TYPE, OF_SERVICE, Measure, Sample, Source, text
from trainyard.emulator.cloudwatch.metric_store import Metric, Metrics

PATH = "/metrics"


def token_of(secret: str) -> str:
    """Return Prometheus' token: it is derived from the secret, and gives access only to the
    metrics.
    """
    return hmac.new(secret.encode(), b"trainyard metrics", hashlib.sha256).hexdigest()


def is_scrape(request: Request) -> bool:
    """Return whether it is a request for metrics; one for a bucket called metrics is signed."""
    scheme = request.headers.get("Authorization", "").partition(" ")[0]
    return request.path == PATH and request.method == "GET" and scheme.lower() == "bearer"


def answer(request: Request, secret: str, stores: Iterable[Metrics]) -> Response:
    """Return the metrics of all regions' stores; 401 for a wrong token."""
    token = request.headers["Authorization"].partition(" ")[2].strip()
    if not hmac.compare_digest(token.encode(), token_of(secret).encode()):
        challenge = {"WWW-Authenticate": 'Bearer realm="trainyard"'}
        return Response("trainyard metrics token prints the token\n", 401, challenge)
    totals = {m: total for store in stores for m, total in store.totals(_NAMESPACES).items()}
    body = text((measure, list(_samples(measure, totals))) for measure in OF_SERVICE)
    return Response(body, content_type=CONTENT_TYPE)


_NAMESPACES = sorted({source.namespace for measure in OF_SERVICE for source in measure.sources})


def _samples(measure: Measure, totals: dict[Metric, tuple[float, float]]) -> Iterator[Sample]:
    """Iterate over a sample for each combination of labels; regions are added up."""
    sums: defaultdict[tuple[tuple[str, str], ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for source in measure.sources:
        for metric, (count, total) in totals.items():
            if (labels := _labels(measure, source, metric)) is not None:
                sums[tuple(labels.items())][0] += total * source.scale
                sums[tuple(labels.items())][1] += count
    for key, (total, count) in sorted(sums.items()):
        yield Sample(dict(key), total, count)


def _labels(measure: Measure, source: Source, metric: Metric) -> dict[str, str] | None:
    """Return the labels of a metric; None if it is not the source's."""
    dimensions = dict(metric.dimensions)
    if (metric.namespace, metric.name) != (source.namespace, source.name):
        return None
    if dimensions.keys() != measure.dimensions.keys():
        return None
    return {label: dimensions[name] for name, label in measure.dimensions.items()} | dict(
        source.labels
    )
