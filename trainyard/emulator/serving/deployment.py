"""DeploymentConfig of an update: shares of traffic, waits after each shift, alarms that roll back.

Shares are those of the developer guide, "Blue/Green Deployments" and "Rolling Deployments". Since
a variant has one process here, an INSTANCE_COUNT becomes a share of the requested instances.
"""

from dataclasses import dataclass

from trainyard.emulator.api import ApiError

LIMITS = {"CanarySize": (0, 0.5), "LinearStepSize": (0.1, 0.5), "MaximumBatchSize": (0.05, 0.5)}
"""Member → its smallest and largest share of the instances: botocore's documentation of each."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The plan of an update: shifts green's share of the requests, and bakes after each shift."""

    shares: tuple[float, ...] = (1.0,)
    bake: float = 0.0
    """Seconds after each shift during which an alarm rolls everything back."""
    termination: float = 0.0
    """Additional seconds after the last shift, before blue ends."""
    limit: float = float("inf")
    """Longest duration of the whole update, in seconds."""
    alarms: tuple[str, ...] = ()


def plan_deployment(config: dict, instances: int) -> Deployment:
    """Return the plan of a DeploymentConfig. ``instances``: the configuration's, of all variants.

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
    shares = _plan_traffic(routing, instances)
    bake = routing["WaitIntervalInSeconds"]
    if limit <= bake * len(shares) + termination:
        raise _invalid(
            f"MaximumExecutionTimeoutInSeconds {limit} must be more than the waits: {len(shares)} "
            f"times {bake} and {termination} s"
        )
    return Deployment(shares, bake, termination, limit, alarms)


def _plan_traffic(routing: dict, instances: int) -> tuple[float, ...]:
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
