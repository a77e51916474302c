"""Checks of CreateHyperParameterTuningJob, before anything starts.

The rules are those of botocore's model, of the API reference and of the developer guide's pages
"Define Hyperparameter Ranges", "Hyperband" and "Configure Completion Criteria". Each error names
the member, its value and what is expected. Most of AWS's own texts are not known.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs import builtin_algorithms
from trainyard.emulator.tuning.search_space import Categorical, size, space_of
from trainyard.emulator.tuning.search_strategies import STRATEGIES, lacking
from trainyard.language.statuses import EPOCHS

CONFIG = "HyperParameterTuningJobConfig"
MOST_RESOURCE = 20_000
MOST_JOBS = {"Random": 10_000}
JOBS, PARALLEL, SEARCHED = 750, 100, 30  # the guide's quotas, as high as AWS raises them
_KINDS = ("IntegerParameterRanges", "ContinuousParameterRanges", "CategoricalParameterRanges")
_SCALING = ("Auto", "Linear", "Logarithmic", "ReverseLogarithmic")


def invalid(message: str) -> ApiError:
    """Return a ``ValidationException`` with that message."""
    return ApiError("ValidationException", message)


def definitions(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the training definitions of a checked request."""
    single = request.get("TrainingJobDefinition")
    return [single] if single else list(request["TrainingJobDefinitions"])


def ranges_of(request: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition's ranges: its own, or the tuning job's."""
    return definition.get("HyperParameterRanges") or request[CONFIG].get("ParameterRanges") or {}


def objective_of(request: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return Type and MetricName of a definition's objective."""
    shared = request[CONFIG].get("HyperParameterTuningJobObjective")
    return definition.get("TuningObjective") or shared or {}


def metric_of(request: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the MetricDefinition that reads the objective.

    Raises:
        ApiError: it is missing.
    """
    objective = objective_of(request, definition)
    spec = definition["AlgorithmSpecification"]
    static = definition.get("StaticHyperParameters") or {}
    if builtin_algorithms.without_script(
        {"AlgorithmSpecification": spec, "HyperParameters": static}
    ):
        known = builtin_algorithms.metric_definitions()
    else:
        known = spec.get("MetricDefinitions") or []
    for metric in known:
        if metric["Name"] == objective["MetricName"]:
            return metric
    there = ", ".join(metric["Name"] for metric in known) or "nothing"
    raise invalid(
        "A metric is required for this hyperparameter tuning job objective. Provide a metric in "
        f"the metric definitions. MetricName {objective['MetricName']!r} is not one: "
        f"MetricDefinitions have {there}"
    )


def resources(config: Mapping[str, Any], definition: Mapping[str, Any]) -> tuple[int, int]:
    """Return Hyperband's MinResource and MaxResource, inferred if they are missing.

    Raises:
        ApiError: MaxResource is neither given nor a static hyperparameter, or the two do not fit.
    """
    given = (config.get("StrategyConfig") or {}).get("HyperbandStrategyConfig") or {}
    static = definition.get("StaticHyperParameters") or {}
    found = (static[name] for name in EPOCHS if str(static.get(name, "")).strip('"').isdecimal())
    most = given.get("MaxResource") or int(next(found, "0").strip('"'))
    least = given.get("MinResource", 1)
    if not most:
        raise invalid(
            "Strategy Hyperband needs HyperbandStrategyConfig.MaxResource, or a static "
            f"hyperparameter to infer it from: {', '.join(EPOCHS)}"
        )
    if not least < most <= MOST_RESOURCE:
        raise invalid(
            f"HyperbandStrategyConfig: MinResource {least} and MaxResource {most}: expected "
            f"MinResource < MaxResource <= {MOST_RESOURCE}"
        )
    return least, most


def check_search(request: Mapping[str, Any]) -> None:
    """Refuse a search that cannot be run, whatever is trained.

    Raises:
        ApiError: the first error found.
    """
    config = request[CONFIG]
    _one_of(f"{CONFIG}.Strategy", config["Strategy"], tuple(STRATEGIES))
    if why := lacking(config["Strategy"]):
        raise invalid(why)
    if request.get("Autotune") or (config.get("ParameterRanges") or {}).get("AutoParameters"):
        raise invalid(
            "Autotune is not run by this emulator, since its choice of ranges is not public: give "
            "the ranges yourself in ParameterRanges"
        )
    several = request.get("TrainingJobDefinitions")
    if bool(several) == bool(request.get("TrainingJobDefinition")):
        raise invalid("expected one of TrainingJobDefinition and TrainingJobDefinitions")
    _definitions(request)
    _limits(config, sum(size(space_of(ranges_of(request, d))) for d in definitions(request)))
    _strategy(request)
    _completion(config.get("TuningJobCompletionCriteria") or {})


def _definitions(request: Mapping[str, Any]) -> None:
    found = definitions(request)
    for number, definition in enumerate(found):
        where = f"TrainingJobDefinitions[{number}]" if len(found) > 1 else "TrainingJobDefinition"
        if request.get("TrainingJobDefinitions"):
            for member in ("DefinitionName", "TuningObjective", "HyperParameterRanges"):
                if not definition.get(member):
                    raise invalid(f"{where}: each of several needs {member}")
        objective = objective_of(request, definition)
        if not objective:
            raise invalid(f"{CONFIG}.HyperParameterTuningJobObjective: it is required")
        _one_of("HyperParameterTuningJobObjective.Type", objective["Type"],
                ("Maximize", "Minimize"))  # fmt: skip
        _ranges(where, ranges_of(request, definition), definition)
    names = [definition.get("DefinitionName") for definition in found]
    if len(set(names)) < len(names):
        raise invalid(f"TrainingJobDefinitions: DefinitionName must be unique, they are {names}")


def _ranges(where: str, ranges: Mapping[str, Any], definition: Mapping[str, Any]) -> None:
    items = [(kind, item) for kind in _KINDS for item in ranges.get(kind) or ()]
    names = [item["Name"] for _, item in items]
    if not 1 <= len(names) <= SEARCHED:
        raise invalid(f"{where}: {len(names)} hyperparameters are searched, expected 1..{SEARCHED}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise invalid(f"{where}: {', '.join(twice)} has more than one range")
    if both := sorted(set(names) & set(definition.get("StaticHyperParameters") or ())):
        raise invalid(
            f"{where}: {', '.join(both)} is both in StaticHyperParameters and in a range: "
            "remove it from one"
        )
    for kind, item in items:
        for fault in _faults(kind, item):
            raise invalid(f"{kind}, {item['Name']!r}: {fault}")


def _faults(kind: str, item: Mapping[str, Any]) -> Iterator[str]:
    if kind == "CategoricalParameterRanges":
        values = item["Values"]
        if len(set(values)) < len(values):
            yield f"Values must be unique, they are {values}"
        return
    whole = kind == "IntegerParameterRanges"
    bounds = [_number(item[end], whole) for end in ("MinValue", "MaxValue")]
    low, high = bounds
    shown = f"from {item['MinValue']!r} to {item['MaxValue']!r}"
    if low is None or high is None:
        yield f"{shown}: expected {'integers' if whole else 'finite numbers'}"
        return
    if low >= high:
        yield f"{shown}: MinValue must be less than MaxValue; a single value is a static one"
    scaling = item.get("ScalingType", "Auto")
    if scaling not in _SCALING:
        yield f"ScalingType {scaling!r}: expected one of {', '.join(_SCALING)}"
    if scaling == "Logarithmic" and low <= 0:
        yield f"{shown} with ScalingType Logarithmic: MinValue must be above 0"
    if scaling == "ReverseLogarithmic" and (whole or not 0 <= low < high < 1):
        yield f"{shown} with ScalingType ReverseLogarithmic: expected a continuous 0 <= x < 1"


def _number(text: str, whole: bool) -> float | None:
    try:
        value = float(int(text)) if whole else float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _limits(config: Mapping[str, Any], combinations: int) -> None:
    limits, strategy = config["ResourceLimits"], config["Strategy"]
    most, parallel = limits.get("MaxNumberOfTrainingJobs"), limits["MaxParallelTrainingJobs"]
    where = f"{CONFIG}.ResourceLimits"
    if strategy == "Grid" and most not in (None, combinations):
        raise invalid(
            f"{where}.MaxNumberOfTrainingJobs {most}: strategy Grid trains each of the "
            f"{combinations} combinations once; leave it out"
        )
    ends = ("MaxRuntimeInSeconds" in limits) or bool(config.get("TuningJobCompletionCriteria"))
    if most is None and strategy != "Grid" and not ends:
        raise invalid(
            f"{where}: strategy {strategy} needs MaxNumberOfTrainingJobs, MaxRuntimeInSeconds "
            "or a TuningJobCompletionCriteria"
        )
    quota = MOST_JOBS.get(strategy, JOBS)
    total = most or (combinations if strategy == "Grid" else 1)
    for name, value, limit in (
        ("MaxNumberOfTrainingJobs", total, quota),
        ("MaxParallelTrainingJobs", parallel, PARALLEL),
    ):
        if not 1 <= value <= limit:
            raise ApiError(
                "ResourceLimitExceeded", f"{where}.{name} {value}: the quota is 1..{limit}"
            )
    if most is not None and parallel > most:
        raise invalid(
            f"{where}: MaxParallelTrainingJobs {parallel} is more than MaxNumberOfTrainingJobs "
            f"{most}"
        )
    seconds = limits.get("MaxRuntimeInSeconds", 120)
    if not 120 <= seconds <= 15_768_000:
        raise invalid(f"{where}.MaxRuntimeInSeconds {seconds}: expected 120..15768000")


def _strategy(request: Mapping[str, Any]) -> None:
    config = request[CONFIG]
    strategy, early = config["Strategy"], config.get("TrainingJobEarlyStoppingType", "Off")
    _one_of(f"{CONFIG}.TrainingJobEarlyStoppingType", early, ("Off", "Auto"))
    if config.get("StrategyConfig") and strategy != "Hyperband":
        raise invalid(f"{CONFIG}.StrategyConfig is for strategy Hyperband, not {strategy}")
    if strategy == "Hyperband":
        if early != "Off":
            raise invalid(
                "TrainingJobEarlyStoppingType must be Off with strategy Hyperband, which stops "
                "jobs itself"
            )
        for definition in definitions(request):
            resources(config, definition)
    for definition in definitions(request):
        space = space_of(ranges_of(request, definition))
        numbers = [item.name for item in space if not isinstance(item, Categorical)]
        if strategy == "Grid" and numbers:
            raise invalid(
                f"strategy Grid searches CategoricalParameterRanges only: {', '.join(numbers)}"
            )


def _completion(criteria: Mapping[str, Any]) -> None:
    least = (criteria.get("BestObjectiveNotImproving") or {}).get(
        "MaxNumberOfTrainingJobsNotImproving", 3
    )
    if least < 3:
        raise invalid(f"MaxNumberOfTrainingJobsNotImproving {least}: expected 3 or more")
    switch = (criteria.get("ConvergenceDetected") or {}).get("CompleteOnConvergence", "Disabled")
    _one_of("ConvergenceDetected.CompleteOnConvergence", switch, ("Disabled", "Enabled"))


def _one_of(where: str, value: Any, expected: tuple[str, ...]) -> None:
    if value not in expected:
        raise invalid(f"{where} {value!r}: expected one of {', '.join(expected)}")
