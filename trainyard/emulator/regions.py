"""The parts of the emulator that each region of an account has for itself: SageMaker, logs, model
registry.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from werkzeug import Request, Response

from trainyard.emulator.cloudwatch.metric_store import Metrics
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.logs.log_store import LogStore
from trainyard.emulator.logs.logs_api import Logs
from trainyard.emulator.request_scope import (
    ACCOUNT,
    EXISTING,
    REGION,
    ApiError,
    account,
    account_of,
    enter_scope,
    foreign,
    region,
    region_of,
)
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.endpoints.invocations import Reply
from trainyard.emulator.sagemaker.model_registry import Registry, find_arn
from trainyard.emulator.sagemaker.resources import ResourceStore, refusal

REGIONS = "regions"
"""Folder in an account's state directory that holds the state of other regions."""
ACCOUNTS = "accounts"
"""Folder in a state directory that holds the state of other accounts."""
Forward = Callable[..., dict]


def folders(state: Path) -> list[Path]:
    """Return the directory of each world below a state directory; the first is the state's own."""
    accounts = [state, *sorted(state.glob(f"{ACCOUNTS}/*/"))]
    return [
        folder
        for account_folder in accounts
        for folder in (account_folder, *sorted(account_folder.glob(f"{REGIONS}/*/")))
    ]


class SageMaker(Protocol):
    """The part that runs pipelines and jobs; :mod:`trainyard.emulator.sagemaker.sagemaker_api` is
    the real one.
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
    """The services of one region of an account. ``state``: its directory. ``others``: returns the
    world in this thread's region of the account with that number.
    """

    def __init__(
        self,
        state: Path,
        objects: ObjectStore,
        aws: Aws,
        make: MakeSageMaker,
        others: "Callable[[str], World]",
    ) -> None:
        self.logs = LogStore(state / "logs")
        self.logs_api = Logs(self.logs)
        # Not SageMaker's own method: SageMaker is made below, with this registry behind
        # ``forward``.
        self.registry = Registry(state / "registry", self._package_changed)
        self._others = others
        self._stores = self.registry, ResourceStore(state / "stored")
        self.sagemaker = make(state, objects, self.logs, aws, self.forward)

    def _package_changed(self, package: dict) -> None:
        self.sagemaker.package_changed(package)

    def forward(self, operation: str, request: dict, own_members: dict | None = None) -> dict:
        """Answer a SageMaker operation that does not run anything. Raises :class:`ApiError`.

        ``own_members``: members of what is created that only SageMaker itself sets.
        """
        # What is named by the ARN of another account is that account's: its groups and packages can
        # be shared.
        if owner := foreign(find_arn(operation, request)):
            with enter_scope(region(), owner):
                return self._others(owner).forward(operation, request, own_members)
        for room in self._stores:
            if room.owns(operation, request):
                return room.handle(operation, request, own_members)
        raise refusal(operation, request)


class Worlds:
    """The regions of each account. The world of ``us-east-1`` is the account's state directory
    itself; another region's is ``regions/<name>``, created when the region is first asked for. The
    emulator's own account has the state directory itself; another one ``accounts/<number>``.
    """

    def __init__(self, state: Path, objects: ObjectStore, aws: Aws, make: MakeSageMaker) -> None:
        self._state, self._objects, self._aws, self._make = state, objects, aws, make
        self._worlds: dict[tuple[str, str], World] = {}
        self._lock = threading.RLock()
        self._serves = self._is_closed = False
        aws.authority.group_policy = self._group_policy
        EXISTING.clear()
        for number in [ACCOUNT, *sorted(path.name for path in (state / ACCOUNTS).glob("*/"))]:
            EXISTING.add(number)
            regions = (self._folder(number) / REGIONS).glob("*/")
            for name in [REGION, *sorted(path.name for path in regions)]:
                with enter_scope(name, number):
                    self.get_world()

    @property
    def metrics(self) -> list[Metrics]:
        """Metrics measured in each region."""
        with self._lock:
            return [world.sagemaker.metrics for world in self._worlds.values()]

    @property
    def names(self) -> list[str]:
        """Names of the regions of the emulator's own account."""
        return [name for number, name in self._worlds if number == ACCOUNT]

    def get_world(self) -> World:
        """Return the world of the account and region that this thread works for.

        Raises ``ServiceUnavailable`` for a new one while the emulator stops.
        """
        world_key = account(), region()
        with self._lock:
            if world_key not in self._worlds:
                if self._is_closed:
                    raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
                state = self._folder(account())
                place = state if region() == REGION else state / REGIONS / region()
                place.mkdir(parents=True, exist_ok=True)
                world = World(place, self._objects, self._aws, self._make, self._get_account_world)
                self._worlds[world_key] = world
                if self._serves:
                    world.sagemaker.begin()
            return self._worlds[world_key]

    def open(self, number: str) -> None:
        """Create the account with that number, unless it exists."""
        with enter_scope(region(), number):
            self.get_world()
        EXISTING.add(number)

    def _folder(self, number: str) -> Path:
        return self._state if number == ACCOUNT else self._state / ACCOUNTS / number

    def _get_account_world(self, number: str) -> World:
        with enter_scope(region(), number):
            return self.get_world()

    def _group_policy(self, arn: str) -> str | None:
        """Return the resource policy of the model package group with that ARN."""
        with enter_scope(region_of(arn), account_of(arn)):
            return self.get_world().registry.policy(arn)

    def begin(self) -> None:
        """Resume what an earlier emulator left. To be called when the endpoint serves."""
        with self._lock:
            self._serves = True
            for (number, name), world in self._worlds.items():
                with enter_scope(name, number):
                    world.sagemaker.begin()

    def close(self) -> None:
        """Stop every world; return when no process of any job is left."""
        with self._lock:
            self._is_closed = True
        # Without the lock: jobs that end may still ask for their world.
        for (number, name), world in self._worlds.items():
            with enter_scope(name, number):
                world.sagemaker.close()
