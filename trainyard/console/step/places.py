"""The places in S3 that a step reads and writes, and how much lies there."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.console.account import Account
from trainyard.plan.diff import label
from trainyard.plan.fields import HIDDEN, flat
from trainyard.plan.listing import listed

MOST = 40
"""Places that are listed; what stands behind them is in the arguments."""

KEYS = 1_000
"""Objects that are counted at most."""

SECONDS = 10.0
"""For which a listing is good: a job writes all the time, and nobody reads so fast."""

Use = Literal["input", "output", "named"]

_SAYS = re.compile(
    r"(?P<input>Input|ModelData|Supplied)|Output|Artifacts|Checkpoint|Calculated|Viol"
)
_NAMED = re.compile(r"^(?:Environment|HyperParameters|Container(?:Arguments|Entrypoint)|Tags)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One S3 URI of a step."""

    name: str
    """Where it stands in the arguments: ``InputDataConfig[train].S3Uri``."""

    use: Use
    uri: str
    sizes: Sequence[int] | None = None
    """Bytes of each of the first ``KEYS`` objects; None where they could not be listed."""

    error: str = ""
    """Why it could not be listed."""


def places(here: Account, told: Mapping[str, Any], job: str = "") -> list[Place]:
    """Every S3 URI in what is told of a step, inputs first, each with what lies there.

    Args:
        told: the job's own description, or the step's arguments.
        job: its name: a training job writes into a folder of that name.
    """
    found = list(_uris(told, job))[:MOST]
    with ThreadPoolExecutor(8) as threads:
        listed = list(threads.map(lambda one: _place(here, *one), found))
    order = {"input": 0, "output": 1, "named": 2}
    return sorted(listed, key=lambda place: order[place.use])


def _uris(told: Mapping[str, Any], job: str) -> Iterator[tuple[str, Use, str]]:
    """(name, use, URI), each URI once for each use."""
    seen = set()
    texts = json.loads(json.dumps(told, default=str))  # times have no URI
    for path, field in flat(texts).items():
        uri = field.raw.strip('"') if isinstance(field.raw, str) else ""
        if not uri.startswith("s3://") or field.text == HIDDEN or any(c.isspace() for c in uri):
            continue
        if path.endswith("OutputDataConfig.S3OutputPath") and job:
            uri = f"{uri.rstrip('/')}/{job}/"
        use = _use(path)
        if (use, uri) not in seen:
            seen.add((use, uri))
            yield label(path), use, uri


def _use(path: str) -> Use:
    says = None if _NAMED.search(path) else _SAYS.search(path)
    if says is None:
        return "named"
    return "input" if says["input"] else "output"


def _place(here: Account, name: str, use: Use, uri: str) -> Place:
    def read() -> list[int]:
        return [one.get("Size", 0) for one in listed(here.s3, uri, KEYS)]

    try:
        sizes = here.lately(("step: listing", uri), read, SECONDS)
    except (ClientError, BotoCoreError) as error:
        return Place(name=name, use=use, uri=uri, error=str(error))
    return Place(name=name, use=use, uri=uri, sizes=sizes)
