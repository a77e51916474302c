"""Checks of CreateHyperParameterTuningJob, made before anything starts.

What ``trainyard.validate`` finds in a tuning step is refused by its rules, and what botocore's
model does not allow by ``request_shapes``. This module has the other checks, from the API reference
and from the developer guide's pages "Define Hyperparameter Ranges" and "Hyperband". Each error
names the member, its value and what is expected. Most of AWS's own texts are not known.
"""

from collections.abc import Mapping
from typing import Any

from trainyard.emulator.request_scope import ApiError, make_validation_error
from trainyard.emulator.sagemaker.jobs import builtin_algorithms
from trainyard.emulator.sagemaker.tuning.search_strategies import (
    build_space,
    count_combinations,
    explain_missing_strategy,
)
from trainyard.language.definition_document import EPOCHS, Document, iter_steps
from trainyard.validate.rules import search_limits, tuning_limits
from trainyard.validate.rules.rule import RULES

CONFIG = "HyperParameterTuningJobConfig"
MOST_RESOURCE = 20_000
MOST_JOBS = {"Random": 10_000}
JOBS, PARALLEL, SEARCH_LIMIT = 750, 100, 30  # the guide's quotas, as high as AWS raises them
_MODULES = (search_limits.__name__, tuning_limits.__name__)
_IN_WORDS_OF_AWS = "objective-without-metric"  # ``find_metric_definition`` refuses it


def list_definitions(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the training definitions of a request that has been checked."""
    single = request.get("TrainingJobDefinition")
    return [single] if single else list(request["TrainingJobDefinitions"])


def find_ranges(request: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition's parameter ranges: its own, or those of the tuning job."""
    return definition.get("HyperParameterRanges") or request[CONFIG].get("ParameterRanges") or {}


def find_objective(request: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return Type and MetricName of a definition's objective."""
    common_objective = request[CONFIG].get("HyperParameterTuningJobObjective")
    return definition.get("TuningObjective") or common_objective or {}


def find_metric_definition(
    request: Mapping[str, Any], definition: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the MetricDefinition with which the objective is read.

    Raises:
        ApiError: it is missing.
    """
    objective = find_objective(request, definition)
    spec = definition["AlgorithmSpecification"]
    static = definition.get("StaticHyperParameters") or {}
    if builtin_algorithms.runs_without_script(
        {"AlgorithmSpecification": spec, "HyperParameters": static}
    ):
        metrics = builtin_algorithms.list_metric_definitions()
    else:
        metrics = spec.get("MetricDefinitions") or []
    for metric in metrics:
        if metric["Name"] == objective["MetricName"]:
            return metric
    names = ", ".join(metric["Name"] for metric in metrics) or "nothing"
    raise make_validation_error(
        "A metric is required for this hyperparameter tuning job objective. Provide a metric in "
        f"the metric definitions. MetricName {objective['MetricName']!r} is not one: "
        f"MetricDefinitions have {names}"
    )


def resolve_resources(config: Mapping[str, Any], definition: Mapping[str, Any]) -> tuple[int, int]:
    """Return Hyperband's MinResource and MaxResource. Missing values are inferred: 1, and the
    static hyperparameter for the number of epochs.

    Raises:
        ApiError: the two do not fit each other.
    """
    hyperband = (config.get("StrategyConfig") or {}).get("HyperbandStrategyConfig") or {}
    static = definition.get("StaticHyperParameters") or {}
    # The SDK writes hyperparameters as JSON, so a number may be in quotes.
    epochs = (static[name] for name in EPOCHS if str(static.get(name, "")).strip('"').isdecimal())
    max_resource = hyperband.get("MaxResource") or int(next(epochs, "0").strip('"'))
    min_resource = hyperband.get("MinResource", 1)
    if not min_resource < max_resource <= MOST_RESOURCE:
        raise make_validation_error(
            f"HyperbandStrategyConfig: MinResource {min_resource} and MaxResource {max_resource}: "
            "expected "
            f"MinResource < MaxResource <= {MOST_RESOURCE}"
        )
    return min_resource, max_resource


def check_search(request: Mapping[str, Any]) -> None:
    """Check that the search can be run, independently of what is trained.

    Raises:
        ApiError: the first error found.
    """
    config = request[CONFIG]
    if reason := explain_missing_strategy(config["Strategy"]):
        raise make_validation_error(reason)
    if request.get("Autotune") or (config.get("ParameterRanges") or {}).get("AutoParameters"):
        raise make_validation_error(
            "Autotune is not run by this emulator, since its choice of ranges is not public: give "
            "the ranges yourself in ParameterRanges"
        )
    several = request.get("TrainingJobDefinitions")
    if bool(several) == bool(request.get("TrainingJobDefinition")):
        raise make_validation_error(
            "expected one of TrainingJobDefinition and TrainingJobDefinitions"
        )
    _check_definitions(request)
    _refuse_validation_errors(request)
    _check_limits(
        config,
        sum(
            count_combinations(build_space(find_ranges(request, d)))
            for d in list_definitions(request)
        ),
    )
    _check_strategy(request)


def _refuse_validation_errors(request: Mapping[str, Any]) -> None:
    """Raise ApiError with the first error that ``trainyard.validate`` finds in a step with this
    request.
    """
    step = {"Name": "Tuning", "Type": "Tuning", "Arguments": request}
    document = Document(document={"Steps": [step]}, parameters={}, steps=tuple(iter_steps([step])))
    for rule in RULES.values():
        if rule.module not in _MODULES or rule.severity != "error" or rule.name == _IN_WORDS_OF_AWS:
            continue
        for finding in rule.iter_findings(document):
            member = finding.path.partition(".Arguments.")[2]
            raise make_validation_error(f"{member}: {finding.problem}: {finding.fix}")


def _check_definitions(request: Mapping[str, Any]) -> None:
    """Raise ApiError if a training definition is incomplete, or its name is not unique."""
    all_definitions = list_definitions(request)
    for number, definition in enumerate(all_definitions):
        location = (
            f"TrainingJobDefinitions[{number}]"
            if len(all_definitions) > 1
            else "TrainingJobDefinition"
        )
        if request.get("TrainingJobDefinitions"):
            for member in ("DefinitionName", "TuningObjective", "HyperParameterRanges"):
                if not definition.get(member):
                    raise make_validation_error(f"{location}: each of several needs {member}")
        objective = find_objective(request, definition)
        if not objective:
            raise make_validation_error(
                f"{CONFIG}.HyperParameterTuningJobObjective: it is required"
            )
        _check_ranges(location, find_ranges(request, definition))
    names = [definition.get("DefinitionName") for definition in all_definitions]
    if len(set(names)) < len(names):
        raise make_validation_error(
            f"TrainingJobDefinitions: DefinitionName must be unique, they are {names}"
        )


def _check_ranges(location: str, ranges: Mapping[str, Any]) -> None:
    """Raise ApiError if the number, the names or the scaling of the ranges are not allowed."""
    items = [item for kind in tuning_limits.KINDS for item in ranges.get(kind) or ()]
    names = [item["Name"] for item in items]
    if not 1 <= len(names) <= SEARCH_LIMIT:
        raise make_validation_error(
            f"{location}: {len(names)} hyperparameters are searched, expected 1..{SEARCH_LIMIT}"
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise make_validation_error(f"{location}: {', '.join(twice)} has more than one range")
    for item in ranges.get(tuning_limits.INTEGERS) or ():
        if item.get("ScalingType") == "ReverseLogarithmic":
            raise make_validation_error(
                f"{item['Name']!r}: ReverseLogarithmic is for continuous ranges"
            )


def _check_limits(config: Mapping[str, Any], combinations: int) -> None:
    """Raise ApiError if ResourceLimits do not fit the strategy or exceed the quotas."""
    limits, strategy = config["ResourceLimits"], config["Strategy"]
    max_jobs, parallel = limits.get("MaxNumberOfTrainingJobs"), limits["MaxParallelTrainingJobs"]
    location = f"{CONFIG}.ResourceLimits"
    if strategy == "Grid" and max_jobs not in (None, combinations):
        raise make_validation_error(
            f"{location}.MaxNumberOfTrainingJobs {max_jobs}: strategy Grid trains each of the "
            f"{combinations} combinations once; leave it out"
        )
    ends = ("MaxRuntimeInSeconds" in limits) or bool(config.get("TuningJobCompletionCriteria"))
    if max_jobs is None and strategy != "Grid" and not ends:
        raise make_validation_error(
            f"{location}: strategy {strategy} needs MaxNumberOfTrainingJobs, MaxRuntimeInSeconds "
            "or a TuningJobCompletionCriteria"
        )
    quota = MOST_JOBS.get(strategy, JOBS)
    total = max_jobs or (combinations if strategy == "Grid" else 1)
    for name, value, limit in (
        ("MaxNumberOfTrainingJobs", total, quota),
        ("MaxParallelTrainingJobs", parallel, PARALLEL),
    ):
        if not 1 <= value <= limit:
            raise ApiError(
                "ResourceLimitExceeded", f"{location}.{name} {value}: the quota is 1..{limit}"
            )


def _check_strategy(request: Mapping[str, Any]) -> None:
    """Raise ApiError if StrategyConfig does not fit the strategy."""
    config = request[CONFIG]
    strategy = config["Strategy"]
    if config.get("StrategyConfig") and strategy != "Hyperband":
        raise make_validation_error(
            f"{CONFIG}.StrategyConfig is for strategy Hyperband, not {strategy}"
        )
    if strategy == "Hyperband":
        for definition in list_definitions(request):
            resolve_resources(config, definition)
