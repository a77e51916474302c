"""Estimate time and cost of the next execution: ranges with their sources, never one number.

A step that ran before on the same machines is estimated by its shortest and its longest run. A step
that did not is estimated by a prediction, if there is one (from its first decile to its last).
Every step that runs also has an upper limit, its MaxRuntimeInSeconds. Not counted are S3, logs,
data transfer, file systems, and attempts that a retry policy starts again. A tuning step counts as
the largest number of training jobs that it may start; early stopping, which makes it cheaper, is
not counted.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from trainyard.foresight.interval import Spread
from trainyard.language.definition_document import iter_steps
from trainyard.language.evaluation import Unknown, UnstartedScope, evaluate_value, iter_unknowns
from trainyard.language.expressions import ExpressionError, resolve_parameters
from trainyard.language.step_types import get_step_type
from trainyard.language.step_types.job_steps import TRAINING_JOB
from trainyard.plan.cache_prediction import History, Outcome, Run, find_executed_step
from trainyard.plan.definition_diff import index_steps
from trainyard.plan.prices import SPOT_LOW, Kind, Price, Prices

# The prediction for a step, which a plan shows and uses in its sums, whatever its origin.
#
# It is created by code that knows what a step's job computes, such as an application with its own
# training jobs; with ``trainyard.foresight`` or otherwise. A step without a prediction has no
# expected time unless it ran before.


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The predicted duration of a step if it runs."""

    seconds: Spread
    """Seconds from its start to its end."""

    grounds: str
    """Source of the prediction, in words."""

    parts: Mapping[str, float] = field(default_factory=dict)
    """Mapping of a part of the work to its seconds per unit of work, such as an optimizer step."""

    remarks: tuple[str, ...] = ()
    """Further predictions or assumptions, one line each."""

    warnings: tuple[str, ...] = ()
    """Expected problems, and what to do about them, one line each."""


@dataclass(frozen=True, slots=True)
class NotForeseen:
    """A step for which there is no prediction, although others of its kind have one."""

    why: str


Foresight = Mapping[str, Foreseen | NotForeseen]
"""Mapping of a step's name to its prediction."""


CONFIG = "HyperParameterTuningJobConfig"


@dataclass(frozen=True, slots=True)
class Jobs:
    """The number of jobs of one step: one, unless it is a tuning step."""

    max_jobs: int = 1
    """Largest number of jobs in all."""

    parallel: int = 1
    """Largest number of jobs that run at the same time."""

    time_limit: float = math.inf
    """Seconds after which the tuning job itself ends."""

    def compute_longest(self, job_seconds: float) -> float:
        """Return the longest duration of the step in seconds if each job takes ``job_seconds``."""
        return min(math.ceil(self.max_jobs / self.parallel) * job_seconds, self.time_limit)

    def compute_total(self, job_seconds: float) -> float:
        """Return the largest sum of the jobs' seconds if each job takes ``job_seconds``."""
        return min(self.max_jobs * job_seconds, self.parallel * self.time_limit)


def parse_tuning_jobs(config: Any) -> Jobs | None:
    """Return the jobs of a HyperParameterTuningJobConfig; None if they are not known in advance."""
    limits = config.get("ResourceLimits") if isinstance(config, Mapping) else None
    if not isinstance(limits, Mapping):
        return None
    max_jobs = limits.get("MaxNumberOfTrainingJobs") or _count_combinations(config)
    parallel, time_limit = limits.get("MaxParallelTrainingJobs"), limits.get("MaxRuntimeInSeconds")
    if not isinstance(max_jobs, int) or not isinstance(parallel, int):
        return None
    return Jobs(max_jobs, max(1, parallel), time_limit if isinstance(time_limit, int) else math.inf)


def _count_combinations(config: Mapping[str, Any]) -> int | None:
    """Return the number of jobs that strategy Grid starts: the product of the ranges' lengths.

    Return None for another strategy, or if a range is not known.
    """
    ranges = config.get("ParameterRanges")
    items = ranges.get("CategoricalParameterRanges") if isinstance(ranges, Mapping) else None
    if config.get("Strategy") != "Grid" or not isinstance(items, list):
        return None
    product = 1
    for item in items:
        values = item.get("Values") if isinstance(item, Mapping) else None
        if not isinstance(values, list):
            return None
        product *= len(values)
    return product


@dataclass(frozen=True, slots=True)
class Range:
    """A range from ``low`` to ``high``; an end is None if it is not known."""

    low: float | None
    high: float | None

    def __add__(self, other: "Range") -> "Range":
        return Range(_add_known(self.low, other.low), _add_known(self.high, other.high))


NOTHING = Range(0.0, 0.0)
UNKNOWN = Range(None, None)


def _add_known(value: float | None, other: float | None) -> float | None:
    """Return the sum; None if one of the values is not known."""
    return None if value is None or other is None else value + other


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Possible time and cost of a step."""

    step: str
    machines: str
    """Machines, such as ``2 × ml.m5.large``; empty for a step without machines."""

    spot: bool = False
    runs_seen: int = 0
    """Number of earlier runs of the step on the same machines."""

    seen: Range = UNKNOWN
    """Seconds that these runs took."""

    foreseen: Spread | None = None
    """Predicted seconds."""

    limit: float | None = 0.0
    """Longest possible time in seconds; None if it is not known."""

    usd_seen: Range = UNKNOWN
    """USD for ``seen``."""

    usd_foreseen: Range = UNKNOWN
    """USD for ``foreseen``, from its first decile to its last, or to the limit if that is less."""

    usd_limit: float | None = 0.0
    """USD for ``limit`` at on-demand prices; None if it is not known."""

    usd_uncached: float | None = 0.0
    """USD at most if the step were not taken from the cache; None if it is not known."""

    estimated: bool = False
    """True if a price in it was derived."""

    unpriced: str = ""
    """Instance type that has no price."""

    @property
    def is_predicted(self) -> bool:
        """True if the prediction is used, because no earlier run of the step is known."""
        return self.foreseen is not None and self.seen == UNKNOWN

    @property
    def expected_seconds(self) -> Range:
        """Seconds of earlier runs, or else the prediction; ``UNKNOWN`` if there is neither."""
        if not self.is_predicted or self.foreseen is None:
            return self.seen
        longest = self.foreseen.p90 if self.limit is None else min(self.foreseen.p90, self.limit)
        return Range(min(self.foreseen.p10, longest), longest)

    @property
    def usd_expected(self) -> Range:
        """USD for ``expected_seconds``."""
        return self.usd_foreseen if self.is_predicted else self.usd_seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Possible time and cost of the whole execution, as if both branches of conditions ran."""

    seen: Range
    limit: float | None
    usd_seen: Range
    usd_limit: float | None
    usd_uncached: float | None
    """``usd_limit`` if no step were taken from the cache."""

    expected: Range = UNKNOWN
    """Like ``seen``, with predictions for steps without earlier runs."""

    usd_expected: Range = UNKNOWN
    """Like ``usd_seen``, with predictions for steps without earlier runs."""


def estimate_costs(
    document: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    history: History,
    prices: Prices,
    foresight: Foresight = MappingProxyType({}),
) -> list[Cost]:
    """Return the cost of every step, in the order of ``outcomes``."""
    everything, defaults = index_steps(document), resolve_parameters(document, {})
    costs = []
    for outcome in outcomes:
        job = read_work(everything[outcome.step], defaults)
        if not get_step_type(outcome.type).is_charged:
            cost = Cost(step=outcome.step, machines="", seen=NOTHING, usd_seen=NOTHING)
        elif job is None:
            # The step is charged, but its machines or their prices are not known here.
            cost = Cost(
                step=outcome.step, machines="", limit=None, usd_limit=None, usd_uncached=None
            )
        else:
            prediction = foresight.get(outcome.step)
            seconds = prediction.seconds if isinstance(prediction, Foreseen) else None
            cost = _estimate_cost(outcome.step, job, history, prices, seconds)
        if outcome.answer == "cached":
            cost = replace(
                cost,
                seen=NOTHING,
                usd_seen=NOTHING,
                foreseen=None,
                usd_foreseen=UNKNOWN,
                limit=0.0,
                usd_limit=0.0,
            )
        costs.append(cost)
    return costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The machines of a step, and the limits of its jobs."""

    kind: Kind
    instance_type: str
    count: int
    """Number of instances of one job."""

    volume_gb: float
    limit: float | None
    """MaxRuntimeInSeconds of a job; None if it has none, or it is not known in advance."""

    spot: bool
    keep_alive: float
    """Seconds for which a warm pool is kept after a job; 0 without one."""

    jobs: Jobs

    @property
    def machines(self) -> str:
        cluster = f"{self.count} × {self.instance_type}"
        return (
            cluster if self.jobs.max_jobs == 1 else f"at most {self.jobs.max_jobs} jobs × {cluster}"
        )


def read_work(step: Mapping[str, Any], parameters: Mapping[str, Any]) -> Work | None:
    """Return the machines of a step.

    Return None if steps of its type have no machines with prices, or if they are not known in
    advance.

    Args:
        step: the step in the definition.
        parameters: mapping of a parameter's name to its value.
    """
    is_tuning = step["Type"] == "Tuning"
    job = TRAINING_JOB if is_tuning else get_step_type(step["Type"]).sole_job
    # The price table has no prices for the machines of transform jobs.
    if job is None or job.machines == "transform":
        return None
    step_arguments = step.get("Arguments") or {}
    # A tuning step with several definitions (TrainingJobDefinitions) may use different machines:
    # its arguments are then empty here, and the result is None.
    arguments = (step_arguments.get("TrainingJobDefinition") or {}) if is_tuning else step_arguments
    resources = arguments.get("ResourceConfig") or arguments.get("ProcessingResources") or {}
    try:
        settings = evaluate_value(
            {
                "on": resources,
                "until": arguments.get("StoppingCondition"),
                "how": step_arguments.get(CONFIG),
            },
            UnstartedScope(parameters),
        )
    except ExpressionError:
        # The definition has a function that is not known here.
        return None
    if any(iter_unknowns(settings["on"])):
        return None
    cluster = settings["on"].get("ClusterConfig", settings["on"])
    # A heterogeneous cluster has groups of instances instead of one type.
    if not isinstance(cluster.get("InstanceType"), str):
        return None
    jobs = parse_tuning_jobs(settings["how"]) if is_tuning else Jobs()
    if jobs is None:
        return None
    until = settings["until"] if isinstance(settings["until"], dict) else {}
    limit = until.get("MaxRuntimeInSeconds")
    return Work(
        kind=job.machines,
        instance_type=cluster["InstanceType"],
        count=cluster.get("InstanceCount", 1),
        volume_gb=cluster.get("VolumeSizeInGB", 0),
        limit=None if isinstance(limit, Unknown) else limit,
        spot=bool(arguments.get("EnableManagedSpotTraining")),
        keep_alive=cluster.get("KeepAlivePeriodInSeconds") or 0,
        jobs=jobs,
    )


def _estimate_cost(
    step: str, job: Work, history: History, prices: Prices, predicted: Spread | None
) -> Cost:
    """Return the cost of a step if it runs; ``predicted`` is its predicted duration in seconds."""
    cheapest = SPOT_LOW if job.spot else 1.0
    lowest_price, price = (
        prices.compute_cluster(job.kind, job.instance_type, job.count, job.volume_gb, share)
        for share in (cheapest, 1.0)
    )
    seconds = []
    for run in history.runs:
        step_run = run.steps.get(step)
        # A result from the cache does not say how long the step takes.
        if step_run and step_run.source is None and has_same_machines(run, step, job):
            seconds.append(step_run.seconds)
    seen_range = Range(min(seconds), max(seconds)) if seconds else UNKNOWN

    def compute_usd(duration: float | None, rate: Price | None = price) -> float | None:
        return None if duration is None or rate is None else rate.usd * duration / 3600

    # A warm pool is also charged while it waits for another job.
    longest = None if job.limit is None else job.jobs.compute_total(job.limit + job.keep_alive)
    # ``seen_range`` has seconds of the whole step. In each of them, a tuning step may be charged
    # for ``parallel`` jobs.
    all_at_once = None if seen_range.high is None else seen_range.high * job.jobs.parallel
    slow = None if predicted is None else min(predicted.p90, job.limit or predicted.p90)
    fast = None if predicted is None or slow is None else min(predicted.p10, slow)
    return Cost(
        step=step,
        machines=job.machines,
        spot=job.spot,
        runs_seen=len(seconds),
        seen=seen_range,
        foreseen=predicted,
        limit=None if job.limit is None else job.jobs.compute_longest(job.limit),
        usd_seen=Range(compute_usd(seen_range.low, lowest_price), compute_usd(all_at_once)),
        usd_foreseen=Range(compute_usd(fast, lowest_price), compute_usd(slow)),
        usd_limit=compute_usd(longest),
        usd_uncached=compute_usd(longest),
        estimated=price is not None and price.is_estimated,
        unpriced="" if price else job.instance_type,
    )


def has_same_machines(run: Run, name: str, job: Work) -> bool:
    """Return whether ``run`` ran the step ``name`` on the same number and type of machines as
    ``job``.
    """
    step = find_executed_step(run, name)
    then = read_work(step, run.parameters) if step else None
    return bool(then and (then.kind, then.machines) == (job.kind, job.machines))


def compute_total(document: Mapping[str, Any], costs: Sequence[Cost]) -> Total:
    """Add up the costs of all steps; the time is that of the longest path through the steps."""
    seen_ranges, expected_ranges = (
        [cost.seen for cost in costs],
        [cost.expected_seconds for cost in costs],
    )
    return Total(
        seen=_compute_path_range(document, costs, seen_ranges),
        limit=_compute_path_seconds(document, costs, [cost.limit for cost in costs]),
        usd_seen=sum((cost.usd_seen for cost in costs), NOTHING),
        usd_limit=sum_known(cost.usd_limit for cost in costs),
        usd_uncached=sum_known(cost.usd_uncached for cost in costs),
        expected=_compute_path_range(document, costs, expected_ranges),
        usd_expected=sum((cost.usd_expected for cost in costs), NOTHING),
    )


def sum_known(amounts: Iterable[float | None]) -> float | None:
    """Return the sum of the amounts; None if one of them is not known."""
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def _compute_path_range(
    document: Mapping[str, Any], costs: Sequence[Cost], ranges: Sequence[Range]
) -> Range:
    """Return the range of the longest path through the steps, whose times are ``ranges``."""
    low, high = ([getattr(interval, end) for interval in ranges] for end in ("low", "high"))
    return Range(
        _compute_path_seconds(document, costs, low), _compute_path_seconds(document, costs, high)
    )


def _compute_path_seconds(
    document: Mapping[str, Any], costs: Sequence[Cost], durations: Sequence[float | None]
) -> float | None:
    """Return the duration in seconds of the longest path through the steps.

    ``durations`` are those of the steps, in the order of ``costs``; if one of them is None, so is
    the result.
    """
    waits = {step.name: step.waits_for for step in iter_steps(document["Steps"])}
    ends: dict[str, float] = {}
    # The costs are in an order in which steps can run: the steps that a step waits for come before
    # it, so their ends are known.
    for cost, seconds in zip(costs, durations, strict=True):
        if seconds is None:
            return None
        before = (ends[name] for name in waits[cost.step] if name in ends)
        ends[cost.step] = max(before, default=0.0) + seconds
    return max(ends.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a plan is within the budget, with a text about it; empty without a budget."""

    holds: bool
    text: str = ""
