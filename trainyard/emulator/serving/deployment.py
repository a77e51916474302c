"""DeploymentConfig: how an update shifts traffic, how long it bakes, which alarms it heeds.

Shares are those of the developer guide, "Blue/Green Deployments" and "Rolling Deployments". Where a
variant has one process here, an INSTANCE_COUNT becomes its share of the instances that were asked
for.
"""

from dataclasses import dataclass

from trainyard.emulator.api import ApiError

LIMITS = {"CanarySize": (0, 0.5), "LinearStepSize": (0.1, 0.5), "MaximumBatchSize": (0.05, 0.5)}
"""Member → its least and greatest share of the instances: botocore's documentation of each."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What an update does: shifts green's share of the requests, and bakes after each shift."""

    shares: tuple[float, ...] = (1.0,)
    bake: float = 0.0
    """Seconds after each shift in which an alarm turns everything back."""
    termination: float = 0.0
    """Seconds more after the last one, before blue ends."""
    limit: float = float("inf")
    """Seconds that all of it may take."""
    alarms: tuple[str, ...] = ()


def planned(config: dict, instances: int) -> Deployment:
    """Of a request's DeploymentConfig; ``instances``: the configuration's, of all variants.

    Raises ``ValidationException``.
    """
    blue_green, rolling = config.get("BlueGreenUpdatePolicy"), config.get("RollingUpdatePolicy")
    rollback = config.get("AutoRollbackConfiguration") or {}
    alarms = tuple(alarm["AlarmName"] for alarm in rollback.get("Alarms", []))
    if blue_green and rolling:
        raise _invalid("DeploymentConfig: BlueGreenUpdatePolicy or RollingUpdatePolicy, not both")
    if rolling:
        step = _share(rolling, "MaximumBatchSize", instances)
        limit = rolling.get("MaximumExecutionTimeoutInSeconds", float("inf"))
        bake = rolling["WaitIntervalInSeconds"]
        return Deployment(_steps(step), bake, 0.0, limit, alarms)
    if not blue_green:
        return Deployment(alarms=alarms)
    routing = blue_green["TrafficRoutingConfiguration"]
    termination = blue_green.get("TerminationWaitInSeconds", 0)
    limit = blue_green.get("MaximumExecutionTimeoutInSeconds", float("inf"))
    shares = _routed(routing, instances)
    bake = routing["WaitIntervalInSeconds"]
    if limit <= bake * len(shares) + termination:
        raise _invalid(
            f"MaximumExecutionTimeoutInSeconds {limit} must be more than the waits: {len(shares)} "
            f"times {bake} and {termination} s"
        )
    return Deployment(shares, bake, termination, limit, alarms)


def _routed(routing: dict, instances: int) -> tuple[float, ...]:
    kind = routing["Type"]
    if kind == "CANARY":
        return (_share(routing, "CanarySize", instances), 1.0)
    if kind == "LINEAR":
        return _steps(_share(routing, "LinearStepSize", instances))
    if kind != "ALL_AT_ONCE":
        raise _invalid(f"TrafficRoutingConfiguration.Type {kind!r}: ALL_AT_ONCE, CANARY or LINEAR")
    return (1.0,)


def _steps(step: float) -> tuple[float, ...]:
    count = int(1 / step + 1e-9)
    shares = [step * number for number in range(1, count + 1)]
    return tuple(shares if shares[-1] > 1 - 1e-9 else [*shares, 1.0])


def _share(config: dict, member: str, instances: int) -> float:
    if member not in config:
        raise _invalid(f"DeploymentConfig: {member} is missing")
    kind, value = config[member]["Type"], config[member]["Value"]
    share = value / instances if kind == "INSTANCE_COUNT" else value / 100
    least, most = LIMITS[member]
    if instances == 1 and kind == "INSTANCE_COUNT":
        raise _invalid(f"{member} of {value} of one instance is all: use CAPACITY_PERCENT, or more")
    if not (least <= share <= most and share > 0):
        bounds = f"{least:.0%} to {most:.0%} of the {instances} instances"
        raise _invalid(f"{member} {kind} {value}: expected {bounds}")
    return share


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
