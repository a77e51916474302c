"""Clients that ask an endpoint of the embedded AWS, and how each of their requests ended."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from benchmarks.measured_process import create_boto_client

Request = Callable[[int], Mapping[str, Any]]
"""Number of a request, from 0 → its arguments of InvokeEndpoint, beside the endpoint's name."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended."""

    number: int
    at: float
    """Seconds since the epoch when it was sent."""
    variant: str = ""
    """The endpoint's variant that answered; empty without an answer."""
    answer: str = ""
    model_error: str = ""
    """What the model said that failed."""
    lost: str = ""
    """Why it had no answer, though no model failed."""


class Load:
    """Clients that ask while its block runs. A request that is lost is not tried again."""

    def __init__(
        self,
        told: Mapping[str, str],
        endpoint: str,
        request: Request,
        clients: int = 4,
        pause: float = 0.0,
    ) -> None:
        """``told``: the variables that lead to the AWS; ``pause``: seconds after each request."""
        self._told, self._endpoint, self._request, self._pause = told, endpoint, request, pause
        self.ended: list[Ended] = []
        self._numbers, self._stop = itertools.count(), threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def lost(self) -> list[str]:
        """Why each request was lost that was."""
        return [one.lost for one in self.ended if one.lost]

    def _ask(self) -> None:
        runtime = create_boto_client(self._told, "sagemaker-runtime")
        while not self._stop.is_set():
            self.ended.append(self._once(runtime, next(self._numbers)))
            self._stop.wait(self._pause)

    def _once(self, runtime: Any, number: int) -> Ended:
        at = time.time()
        try:
            given = self._request(number)
            answer = runtime.invoke_endpoint(EndpointName=self._endpoint, **given)
            body = answer["Body"].read().decode()
            return Ended(number, at, answer["InvokedProductionVariant"], body)
        except ClientError as error:
            if said := error.response.get("OriginalMessage"):
                return Ended(number, at, model_error=said)
            return Ended(number, at, lost=str(error))
        except (BotoCoreError, OSError) as error:
            return Ended(number, at, lost=repr(error))
