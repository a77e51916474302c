"""The services that are separate in each region of an account, such as SageMaker and the logs."""

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
    enter_scope,
    find_other_account,
    parse_account,
    parse_region,
    read_account,
    read_region,
)
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.endpoints.invocations import Reply
from trainyard.emulator.sagemaker.model_registry import Registry, find_arn
from trainyard.emulator.sagemaker.resources import ResourceStore, make_unimplemented_error

REGIONS = "regions"
"""Folder in an account's state directory that contains the state of other regions."""
ACCOUNTS = "accounts"
"""Folder in a state directory that contains the state of other accounts."""
Forward = Callable[..., dict]


def list_world_folders(state: Path) -> list[Path]:
    """Return the directory of each world, which is a region of an account, in a state directory.

    The first is the state directory itself.
    """
    accounts = [state, *sorted(state.glob(f"{ACCOUNTS}/*/"))]
    return [
        folder
        for account_folder in accounts
        for folder in (account_folder, *sorted(account_folder.glob(f"{REGIONS}/*/")))
    ]


class SageMaker(Protocol):
    """The service that runs pipelines and jobs.

    :mod:`trainyard.emulator.sagemaker.sagemaker_api` has the implementation.
    """

    def owns(self, operation: str) -> bool: ...

    def handle(self, operation: str, request: dict) -> dict: ...

    def invoke(self, path: str, body: bytes, headers: dict[str, str]) -> Reply: ...

    @property
    def metrics(self) -> Metrics: ...

    def begin(self) -> None: ...

    def send_package_event(self, package: dict) -> None: ...

    def answer_other_service(self, service: str, request: Request) -> Response | None: ...

    def close(self) -> None: ...


MakeSageMaker = Callable[[Path, ObjectStore, LogStore, Aws, Forward], SageMaker]


class World:
    """The services of one region of an account.

    ``state`` is its directory. ``others`` returns the world of another account, given its number,
    in the region of the current thread.
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
        # A method of this class, because SageMaker is made below: it needs ``forward``, which uses
        # this registry.
        self.registry = Registry(state / "registry", self._report_package)
        self._others = others
        self._stores = self.registry, ResourceStore(state / "stored")
        self.sagemaker = make(state, objects, self.logs, aws, self.forward)

    def _report_package(self, package: dict) -> None:
        self.sagemaker.send_package_event(package)

    def forward(self, operation: str, request: dict, own_members: dict | None = None) -> dict:
        """Answer a SageMaker operation that does not run anything. Raises :class:`ApiError`.

        ``own_members`` are members of the created resource that only SageMaker itself can set.
        """
        # A resource that is named by the ARN of another account belongs to that account: groups and
        # packages can be shared.
        if owner := find_other_account(find_arn(operation, request)):
            with enter_scope(read_region(), owner):
                return self._others(owner).forward(operation, request, own_members)
        for room in self._stores:
            if room.owns(operation, request):
                return room.handle(operation, request, own_members)
        raise make_unimplemented_error(operation, request)


class Worlds:
    """The worlds of all accounts; a world is a region of an account.

    The emulator's own account uses the state directory itself, another account uses
    ``accounts/<number>`` in it. In the directory of an account, ``us-east-1`` uses that directory
    itself, and another region uses ``regions/<name>``, which is created when the region is first
    used.
    """

    def __init__(self, state: Path, objects: ObjectStore, aws: Aws, make: MakeSageMaker) -> None:
        self._state, self._objects, self._aws, self._make = state, objects, aws, make
        self._worlds: dict[tuple[str, str], World] = {}
        self._lock = threading.RLock()
        self._serves = self._is_closed = False
        aws.authority.group_policy = self._find_group_policy
        EXISTING.clear()
        for number in [ACCOUNT, *sorted(path.name for path in (state / ACCOUNTS).glob("*/"))]:
            EXISTING.add(number)
            regions = (self._find_account_folder(number) / REGIONS).glob("*/")
            for name in [REGION, *sorted(path.name for path in regions)]:
                with enter_scope(name, number):
                    self.get_world()

    @property
    def metrics(self) -> list[Metrics]:
        """Metrics of each world."""
        with self._lock:
            return [world.sagemaker.metrics for world in self._worlds.values()]

    @property
    def names(self) -> list[str]:
        """Names of the regions of the emulator's own account."""
        return [name for number, name in self._worlds if number == ACCOUNT]

    def get_world(self) -> World:
        """Return the world of the current thread's account and region; create it if needed.

        Raises ``ServiceUnavailable`` if it would have to be created while the emulator stops.
        """
        world_key = read_account(), read_region()
        with self._lock:
            if world_key not in self._worlds:
                if self._is_closed:
                    raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
                state = self._find_account_folder(read_account())
                folder = state if read_region() == REGION else state / REGIONS / read_region()
                folder.mkdir(parents=True, exist_ok=True)
                world = World(folder, self._objects, self._aws, self._make, self._get_account_world)
                self._worlds[world_key] = world
                if self._serves:
                    world.sagemaker.begin()
            return self._worlds[world_key]

    def create_account(self, number: str) -> None:
        """Create the account with that number if it does not exist."""
        with enter_scope(read_region(), number):
            self.get_world()
        EXISTING.add(number)

    def _find_account_folder(self, number: str) -> Path:
        return self._state if number == ACCOUNT else self._state / ACCOUNTS / number

    def _get_account_world(self, number: str) -> World:
        with enter_scope(read_region(), number):
            return self.get_world()

    def _find_group_policy(self, arn: str) -> str | None:
        """Return the resource policy of the model package group with that ARN."""
        with enter_scope(parse_region(arn), parse_account(arn)):
            return self.get_world().registry.find_policy(arn)

    def begin(self) -> None:
        """Resume what an earlier emulator left unfinished. Call it when the endpoint serves."""
        with self._lock:
            self._serves = True
            for (number, name), world in self._worlds.items():
                with enter_scope(name, number):
                    world.sagemaker.begin()

    def close(self) -> None:
        """Stop every world; return when no process of a job is left."""
        with self._lock:
            self._is_closed = True
        # Without the lock, because jobs may still need their world while they end.
        for (number, name), world in self._worlds.items():
            with enter_scope(name, number):
                world.sagemaker.close()
