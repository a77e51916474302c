"""An endpoint: the fleet that serves it, and the shift of requests to the next one in an update.

An update starts a second fleet (green) next to the current one (blue), shifts requests to it in
steps and waits after each shift. If an alarm goes off during the update, all requests return to
blue. No request is lost: a fleet is stopped only when its last request has its response.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.request_scope import ApiError, Thread, make_arn, make_validation_error
from trainyard.emulator.sagemaker.endpoints.serving_instance import (
    Answer,
    Fleet,
    NoAnswerError,
    Variant,
    WeightedRoundRobin,
)
from trainyard.emulator.sagemaker.jobs.job import JobServices

# DeploymentConfig of an update: shares of the requests, waits after each shift, and alarms that
# roll the update back. The shares are those of the developer guide, "Blue/Green Deployments" and
# "Rolling Deployments". Because a variant has only one process here, an INSTANCE_COUNT is converted
# to a share of the requested instances.

LIMITS = {"CanarySize": (0, 0.5), "LinearStepSize": (0.1, 0.5), "MaximumBatchSize": (0.05, 0.5)}
"""Mapping of a member of DeploymentConfig to the (smallest, largest) share of the instances that it
may request, from botocore's documentation of each.
"""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The plan of an update: green's share of the requests at each shift, and the waits."""

    shares: tuple[float, ...] = (1.0,)
    bake: float = 0.0
    """Seconds to wait after each shift; an alarm during this time rolls everything back."""
    termination: float = 0.0
    """Additional seconds to wait after the last shift, before blue is stopped."""
    limit: float = float("inf")
    """Maximum duration of the whole update in seconds."""
    alarms: tuple[str, ...] = ()


def plan_deployment(config: dict, instances: int) -> Deployment:
    """Convert a DeploymentConfig to a plan.

    ``instances`` is the number of instances of all variants of the endpoint configuration. Raises
    ``ValidationException`` if the DeploymentConfig is not valid.
    """
    blue_green, rolling = config.get("BlueGreenUpdatePolicy"), config.get("RollingUpdatePolicy")
    rollback = config.get("AutoRollbackConfiguration") or {}
    alarms = tuple(alarm["AlarmName"] for alarm in rollback.get("Alarms", []))
    if blue_green and rolling:
        raise make_validation_error(
            "DeploymentConfig: give either BlueGreenUpdatePolicy or RollingUpdatePolicy, not both"
        )
    if rolling:
        step = _compute_share(rolling, "MaximumBatchSize", instances)
        limit = rolling.get("MaximumExecutionTimeoutInSeconds", float("inf"))
        bake = rolling["WaitIntervalInSeconds"]
        return Deployment(_compute_linear_shares(step), bake, 0.0, limit, alarms)
    if not blue_green:
        return Deployment(alarms=alarms)
    routing = blue_green["TrafficRoutingConfiguration"]
    termination = blue_green.get("TerminationWaitInSeconds", 0)
    limit = blue_green.get("MaximumExecutionTimeoutInSeconds", float("inf"))
    shares = _plan_traffic(routing, instances)
    bake = routing["WaitIntervalInSeconds"]
    if limit <= bake * len(shares) + termination:
        raise make_validation_error(
            f"MaximumExecutionTimeoutInSeconds {limit} must exceed the waits: {len(shares)} "
            f"× {bake} s + {termination} s"
        )
    return Deployment(shares, bake, termination, limit, alarms)


def _plan_traffic(routing: dict, instances: int) -> tuple[float, ...]:
    """Return the green fleet's share of the requests after each shift."""
    kind = routing["Type"]
    if kind == "CANARY":
        return (_compute_share(routing, "CanarySize", instances), 1.0)
    if kind == "LINEAR":
        return _compute_linear_shares(_compute_share(routing, "LinearStepSize", instances))
    if kind != "ALL_AT_ONCE":
        raise make_validation_error(
            f"TrafficRoutingConfiguration.Type {kind!r}: expected ALL_AT_ONCE, CANARY or LINEAR"
        )
    return (1.0,)


def _compute_linear_shares(step: float) -> tuple[float, ...]:
    """Return the green fleet's share after each shift by ``step``. The last share is 1."""
    # 1e-9: rounding errors of the share must neither remove nor add a step.
    count = int(1 / step + 1e-9)
    shares = [step * number for number in range(1, count + 1)]
    return tuple(shares if shares[-1] > 1 - 1e-9 else [*shares, 1.0])


def _compute_share(config: dict, member: str, instances: int) -> float:
    """Return a member of the DeploymentConfig as a share of the instances.

    Raises ``ValidationException`` if it is missing or outside its LIMITS.
    """
    if member not in config:
        raise make_validation_error(f"DeploymentConfig: {member} is missing")
    kind, value = config[member]["Type"], config[member]["Value"]
    share = value / instances if kind == "INSTANCE_COUNT" else value / 100
    minimum, maximum = LIMITS[member]
    if instances == 1 and kind == "INSTANCE_COUNT":
        raise make_validation_error(
            f"{member} INSTANCE_COUNT {value}: there is only one instance; use CAPACITY_PERCENT"
        )
    if not (minimum <= share <= maximum and share > 0):
        bounds = f"{minimum:.0%} to {maximum:.0%} of the {instances} instances"
        raise make_validation_error(f"{member} {kind} {value}: expected {bounds}")
    return share


POLL_SECONDS = 0.1  # seconds between checks of the alarms
log = logging.getLogger(__name__)

ListAlarms = Callable[[tuple[str, ...]], list[str]]
"""Function that returns the names of the given alarms that are in the state ALARM."""


@dataclass(frozen=True, slots=True)
class VariantAnswer:
    """A container's response, with the variant that served the request and the time that it
    took.
    """

    answer: Answer
    config: dict
    """The endpoint configuration of the fleet that served the request."""
    variant: Variant
    seconds: float


def make_endpoint_arn(name: str) -> str:
    return make_arn("sagemaker", f"endpoint/{name.lower()}")


class Endpoint:
    """An endpoint and its fleets. Its methods are thread-safe."""

    def __init__(
        self, services: JobServices, name: str, config: dict, list_alarms: ListAlarms
    ) -> None:
        self.arn = make_endpoint_arn(name)
        self.name, self.status, self.failure = name, "Creating", ""
        self.creation_time = self.modification_time = time.time()
        self.deployment_config: dict = {}
        self._job_services, self._list_alarms = services, list_alarms
        self._blue = Fleet(services, name, config)
        self._green: Fleet | None = None
        self._share, self._turns, self._lock = 0.0, WeightedRoundRobin(), threading.RLock()
        self._deployment_start = 0.0
        self._end_event = threading.Event()
        self._worker: threading.Thread | None = None

    @property
    def config(self) -> dict:
        """The configuration of the serving fleet. During an update this is still blue's."""
        return self._blue.config

    def start(self) -> None:
        """Start the endpoint in the background. ``status`` later becomes ``InService`` or
        ``Failed``.
        """
        self._start_worker("Creating", self._start_first_fleet)

    def update(self, config: dict, deployment: Deployment, deployment_config: dict) -> None:
        """Start an update to ``config`` in the background, while the current fleet keeps serving.

        Raises ``ValidationException`` if the endpoint is not in service.
        """
        fleet = Fleet(self._job_services, self.name, config)
        self._start_worker("Updating", lambda: self._deploy(fleet, deployment))
        self.deployment_config = deployment_config

    def invoke(self, body: bytes, headers: dict[str, str], target: str | None) -> VariantAnswer:
        """Send ``POST /invocations`` to a variant. If the container does not respond, the response
        is the one that AWS sends in that case.

        Raises ``ValidationError`` if the target variant does not exist.
        """
        with contextlib.ExitStack() as stack:
            with self._lock:  # a chosen fleet must not stop before it has the request
                fleet = self._blue
                if self._green:
                    shares = {"green": self._share, "blue": 1 - self._share}
                    fleet = (
                        self._green if self._turns.choose_name(shares) == "green" else self._blue
                    )
                variant = stack.enter_context(fleet.acquire_variant(target))
            began = time.monotonic()
            try:
                answer = variant.instance.invoke(body, headers)
            except NoAnswerError as error:
                log.warning("endpoint %s: %s", self.name, error)
                answer = error.answer
            return VariantAnswer(answer, fleet.config, variant, time.monotonic() - began)

    def describe(self) -> dict:
        """Return DescribeEndpoint's response. Also set the status to ``Failed`` if the serving
        fleet has failed.
        """
        with self._lock:
            # No thread watches a serving fleet: its failure is only detected here, when it is
            # described.
            if self.status == "InService" and (failure := self._blue.failure):
                self.failure, self.status = failure[:1024], "Failed"
            description: dict[str, Any] = {
                "EndpointName": self.name,
                "EndpointArn": self.arn,
                "EndpointConfigName": self._blue.name,
                "EndpointStatus": self.status,
                "CreationTime": self.creation_time,
                "LastModifiedTime": self.modification_time,
                "ProductionVariants": [v.describe() for v in self._blue.variants.values()],
            }
            if self.deployment_config:
                description["LastDeploymentConfig"] = self.deployment_config
            if self._green:
                variants = [v.describe() for v in self._green.variants.values()]
                description["PendingDeploymentSummary"] = {
                    "EndpointConfigName": self._green.name,
                    "ProductionVariants": variants,
                    "StartTime": self._deployment_start,
                }
            return description | ({"FailureReason": self.failure} if self.failure else {})

    def stop(self) -> None:
        """Stop the endpoint. Return when none of its processes is left."""
        self._end_event.set()
        with self._lock:
            fleets, worker = [self._blue, self._green], self._worker
        for fleet in fleets:
            if fleet:
                fleet.stop()
        if worker and worker is not threading.current_thread():
            worker.join()

    # internals

    def _start_worker(self, status: str, work: Callable[[], None]) -> None:
        """Set the status and run ``work`` in a thread. Raises ``ValidationException`` if the
        endpoint is being changed.
        """
        with self._lock:
            if self._worker and (self.status != "InService" or self._worker.is_alive()):
                message = f"Cannot update endpoint {self.name!r}: it is {self.status}"
                raise ApiError("ValidationException", message)
            self._set_status(status)
            self._deployment_start = time.time()
            self._worker = Thread(target=work, name=self.name, daemon=True)
            self._worker.start()

    def _set_status(self, status: str, failure: str = "") -> None:
        with self._lock:
            self.status, self.failure, self.modification_time = status, failure[:1024], time.time()

    def _start_first_fleet(self) -> None:
        """Start the first fleet and wait until it is in service or has failed."""
        self._blue.start()
        self._blue.wait()
        failure = self._blue.failure
        if failure:
            self._blue.stop()
        self._set_status("Failed" if failure else "InService", failure)

    def _deploy(self, fleet: Fleet, deployment: Deployment) -> None:
        """Carry out an update: start the fleet, shift the requests, then complete the update or
        roll it back.
        """
        end = time.monotonic() + deployment.limit
        reason = self._explain_alarms(deployment.alarms)
        if reason:  # before the update, too: developer guide, "Auto-Rollback Configuration"
            return self._set_status("InService", f"The deployment was not started: {reason}")
        with self._lock:
            if self._end_event.is_set():  # deleted meanwhile: nothing would stop the new fleet
                return
            self._green, self._share = fleet, 0.0
        fleet.start()
        fleet.wait()
        reason = fleet.failure
        for number, share in enumerate(deployment.shares):
            if reason or self._end_event.is_set():
                break
            with self._lock:
                self._share = share
            last = number + 1 == len(deployment.shares)
            reason = self._bake(
                deployment, deployment.bake + (deployment.termination if last else 0), end
            )
        if not self._end_event.is_set():
            self._roll_back(fleet, reason) if reason else self._complete(fleet)

    def _bake(self, deployment: Deployment, seconds: float, limit: float) -> str:
        """Wait ``seconds``. Return the reason for a rollback, or an empty string if there is none.

        ``limit`` is the monotonic time at which the update times out.
        """
        bake_end = time.monotonic() + seconds
        while True:
            if reason := self._explain_alarms(deployment.alarms):
                return reason
            if self._green and (failure := self._green.failure):
                return failure
            if time.monotonic() > limit:
                return (
                    f"it took longer than MaximumExecutionTimeoutInSeconds ({deployment.limit:g} s)"
                )
            remaining = bake_end - time.monotonic()
            if remaining <= 0 or self._end_event.wait(min(POLL_SECONDS, remaining)):
                return ""

    def _explain_alarms(self, alarms: tuple[str, ...]) -> str:
        """Return a message with the alarms in the state ALARM; empty if no alarm is."""
        names = self._list_alarms(alarms) if alarms else []
        return f"alarm {', '.join(names)} is in the state ALARM" if names else ""

    def _complete(self, fleet: Fleet) -> None:
        """Make the green fleet the serving fleet, and stop the blue fleet."""
        with self._lock:
            blue, self._blue, self._green = self._blue, fleet, None
        # Without the lock, so that green takes requests while blue completes its last ones.
        blue.drain()
        blue.stop()
        self._set_status("InService")

    def _roll_back(self, fleet: Fleet, reason: str) -> None:
        """Send all requests to the blue fleet again, and stop the green fleet."""
        with self._lock:
            self._set_status("RollingBack")
            self._green, self._share = None, 0.0
        log.warning("endpoint %s is rolled back to %s: %s", self.name, self._blue.name, reason)
        fleet.drain()
        fleet.stop()
        self._set_status("InService", f"The deployment was rolled back: {reason}")
