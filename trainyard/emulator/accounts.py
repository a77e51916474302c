"""The parts of the emulator that each region has for itself: SageMaker, logs, model registry."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from werkzeug import Request, Response

from trainyard.emulator.api import ApiError
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.model_registry import Registry
from trainyard.emulator.regions import REGION, region, within
from trainyard.emulator.services.cloudwatch.metric_store import Metrics
from trainyard.emulator.services.log_store import LogStore
from trainyard.emulator.services.logs_api import Logs
from trainyard.emulator.serving.invocations import Reply
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.emulator.stored import Stored, refusal

REGIONS = "regions"
"""Folder in a state directory that holds the state of other regions."""
Forward = Callable[..., dict]


class SageMaker(Protocol):
    """The part that runs pipelines and jobs; :mod:`trainyard.emulator.sagemaker_api` is the real
    one.
    """

    def owns(self, operation: str) -> bool: ...

    def handle(self, operation: str, request: dict) -> dict: ...

    def invoke(self, path: str, body: bytes, headers: dict[str, str]) -> Reply: ...

    @property
    def metrics(self) -> Metrics: ...

    def begin(self) -> None: ...

    def package_changed(self, package: dict) -> None: ...

    def other(self, service: str, request: Request) -> Response | None: ...

    def close(self) -> None: ...


MakeSageMaker = Callable[[Path, ObjectStore, LogStore, Aws, Forward], SageMaker]


class World:
    """The services of one region. ``state``: its directory."""

    def __init__(self, state: Path, objects: ObjectStore, aws: Aws, make: MakeSageMaker) -> None:
        self.logs = LogStore(state / "logs")
        self.logs_api = Logs(self.logs)
        registry = Registry(state / "registry", self._package_changed)
        self._kept = registry, Stored(state / "stored")
        self.sagemaker = make(state, objects, self.logs, aws, self.forward)

    def _package_changed(self, package: dict) -> None:
        self.sagemaker.package_changed(package)

    def forward(self, operation: str, request: dict, own: dict | None = None) -> dict:
        """Answer a SageMaker operation that does not run anything. Raises :class:`ApiError`.

        ``own``: members of what is created that only SageMaker itself sets.
        """
        for room in self._kept:
            if room.owns(operation, request):
                return room.handle(operation, request, own)
        raise refusal(operation, request)


class Worlds:
    """The regions. The world of ``us-east-1`` is the state directory itself, as it was when there
    was no other region; another region's is ``regions/<name>``, created when the region is first
    asked for.
    """

    def __init__(self, state: Path, objects: ObjectStore, aws: Aws, make: MakeSageMaker) -> None:
        self._state, self._objects, self._aws, self._make = state, objects, aws, make
        self._made: dict[str, World] = {}
        self._lock = threading.RLock()
        self._serves = self._closed = False
        for name in [REGION, *sorted(path.name for path in (state / REGIONS).glob("*/"))]:
            with within(name):
                self.here()

    @property
    def metrics(self) -> list[Metrics]:
        """Metrics measured in each region."""
        with self._lock:
            return [world.sagemaker.metrics for world in self._made.values()]

    @property
    def names(self) -> list[str]:
        return list(self._made)

    def here(self) -> World:
        """Return the world of the region that this thread works for.

        Raises ``ServiceUnavailable`` for a new one while the emulator stops.
        """
        name = region()
        with self._lock:
            if name not in self._made:
                if self._closed:
                    raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
                place = self._state if name == REGION else self._state / REGIONS / name
                place.mkdir(parents=True, exist_ok=True)
                self._made[name] = World(place, self._objects, self._aws, self._make)
                if self._serves:
                    self._made[name].sagemaker.begin()
            return self._made[name]

    def begin(self) -> None:
        """Resume what an earlier emulator left. To be called when the endpoint serves."""
        with self._lock:
            self._serves = True
            for name, world in self._made.items():
                with within(name):
                    world.sagemaker.begin()

    def close(self) -> None:
        """Stop every region; return when no process of any job is left."""
        with self._lock:
            self._closed = True
        for name, world in self._made.items():
            with within(name):
                world.sagemaker.close()
