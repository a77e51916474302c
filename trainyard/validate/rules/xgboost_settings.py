"""Check the hyperparameters of AWS's built-in XGBoost algorithm.

They apply to jobs that start its image without a script. The emulator's XGBoost jobs validate their
hyperparameters by the same table.
"""

import math
from collections.abc import Iterator

from trainyard.common.errors import suggest_nearest
from trainyard.emulator.algorithms.xgboost import facts, hyperparameters
from trainyard.language.definition_document import Document
from trainyard.validate.rules.job_view import Job, join_member, select_training_jobs, to_known_text
from trainyard.validate.rules.rule import Violation, rule
from trainyard.validate.rules.tuning_limits import Range, iter_objectives, iter_searched_ranges

GUIDE = "developer guide, xgboost_hyperparameters"
SOURCE = f"{GUIDE}; sagemaker-xgboost-container, algorithm_mode/hyperparameter_validation.py"
TUNING_SOURCE = "developer guide, xgboost-tuning"
REASON = "the algorithm refuses its hyperparameters: the job fails after its machines have started"


def select_xgboost_jobs(document: Document) -> list[Job]:
    """Return the training jobs that run the built-in algorithm, for a rule's ``select``."""
    jobs = (job for job in select_training_jobs(document) if job.runs_algorithm)
    return [job for job in jobs if facts.is_xgboost_image(job.image or "")]


def select_xgboost_ranges(document: Document) -> list[tuple[Job, Range]]:
    """Return pairs of an XGBoost job and a range that is searched for it, for ``select``."""
    return [
        (job, search_range)
        for job in select_xgboost_jobs(document)
        for search_range in iter_searched_ranges(job)
    ]


def _parse_xgboost_version(job: Job) -> tuple[int, int]:
    return facts.parse_version(job.image or "")


@rule(
    "error",
    select=select_xgboost_jobs,
    reason=REASON,
    fix="give it a value of its type and range",
    source=SOURCE,
)
def xgboost_hyperparameter(job: Job) -> Iterator[Violation]:
    valid_names = hyperparameters.list_hyperparameter_names(_parse_xgboost_version(job))
    for name, value in job.hyperparameters.items():
        field = join_member(job.hyperparameters_path, name)
        if name not in valid_names:
            problem = f"XGBoost has no hyperparameter {name!r}"
            yield job.make_violation(
                field, problem, f"remove it; {suggest_nearest(name, valid_names)}"
            )
        elif (text := to_known_text(value)) is not None and (
            fault := hyperparameters.explain_invalid_hyperparameter(
                name, text, _parse_xgboost_version(job)
            )
        ):
            yield job.make_violation(field, fault)


@rule(
    "error",
    select=select_xgboost_jobs,
    reason=REASON,
    fix="give num_round, the number of trees that are grown one after the other",
    source=SOURCE,
)
def xgboost_without_rounds(job: Job) -> Iterator[Violation]:
    tuned_names = {search_range.name for search_range in iter_searched_ranges(job)}
    if hyperparameters.REQUIRED_NAME not in {*job.hyperparameters, *tuned_names}:
        yield job.make_violation(
            job.hyperparameters_path, "num_round is missing, which is required"
        )


@rule(
    "error",
    select=select_xgboost_jobs,
    reason=REASON,
    fix="change one of them, or add the missing one",
    source=SOURCE,
)
def xgboost_hyperparameters_at_odds(job: Job) -> Iterator[Violation]:
    together = {
        name: value
        for name, value in job.hyperparameters.items()
        if hyperparameters.resolve_alias(name) in hyperparameters.TOGETHER
    }
    tuned_names = {
        hyperparameters.resolve_alias(search_range.name or "")
        for search_range in iter_searched_ranges(job)
    }
    is_undecided = any(not isinstance(value, str) for value in together.values())
    if is_undecided or tuned_names & hyperparameters.TOGETHER:
        return
    version = _parse_xgboost_version(job)
    # ``xgboost_hyperparameter`` reports values that are invalid by themselves.
    if any(
        hyperparameters.explain_invalid_hyperparameter(name, value, version)
        for name, value in together.items()
    ):
        return
    if problem := hyperparameters.explain_hyperparameter_conflict(together, version):
        yield job.make_violation(job.hyperparameters_path, problem)


@rule(
    "error",
    select=select_xgboost_ranges,
    reason="the tuning job's training jobs fail where a value is drawn that the algorithm refuses",
    fix="search within the hyperparameter's limits, with the kind of range that its type needs",
    source=f"{SOURCE}; {TUNING_SOURCE}",
)
def xgboost_range(job_range: tuple[Job, Range]) -> Iterator[Violation]:
    job, search_range = job_range
    name, valid_names = (
        search_range.name,
        hyperparameters.list_hyperparameter_names(_parse_xgboost_version(job)),
    )
    if name is None:
        return
    if name not in valid_names:
        problem = f"XGBoost has no hyperparameter {name!r}"
        yield search_range.job.make_violation(
            f"{search_range.field}.Name",
            problem,
            f"remove it; {suggest_nearest(name, valid_names)}",
        )
    elif (
        search_range.kind == "ContinuousParameterRanges"
        and hyperparameters.is_integer_hyperparameter(name)
    ):
        problem = f"{name} must be an integer"
        yield search_range.job.make_violation(
            search_range.field, problem, "put it into IntegerParameterRanges"
        )
    else:
        for field, text in _iter_drawn_values(search_range):
            if fault := hyperparameters.explain_invalid_hyperparameter(
                name, text, _parse_xgboost_version(job)
            ):
                yield search_range.job.make_violation(f"{search_range.field}.{field}", fault)


@rule(
    "error",
    select=select_xgboost_jobs,
    reason="the tuning job is refused, finds no metric, or selects the worst of its training jobs",
    fix="choose a metric that the algorithm computes on the channel validation, and its own Type",
    source=TUNING_SOURCE,
)
def xgboost_objective(job: Job) -> Iterator[Violation]:
    directions = {f"validation:{name}": "Maximize" for name in facts.MAXIMIZED_METRICS}
    directions |= {f"validation:{name}": "Minimize" for name in facts.MINIMIZED_METRICS}
    for metric_path, name, kind in iter_objectives(job):
        problem = ""
        if name not in directions:
            hint = suggest_nearest(name, [*directions])
            problem = f"{name!r} is not an objective for tuning XGBoost; {hint}"
        elif kind in ("Maximize", "Minimize") and kind != directions[name]:
            problem = f"{name} needs the Type {directions[name]}, not {kind}"
        elif "validation" not in _map_channels(job):
            problem = f"{name} needs a channel validation"
        if problem:
            yield Violation(step=job.step, path=metric_path, problem=problem)


@rule(
    "error",
    select=select_xgboost_jobs,
    reason="the algorithm refuses its channels: the job fails after its machines have started",
    fix="name the channels train and validation, with text/csv, text/libsvm, "
    "application/x-parquet or application/x-recordio-protobuf",
    source="sagemaker-xgboost-container, algorithm_mode/channel_validation.py",
)
def xgboost_channels(job: Job) -> Iterator[Violation]:
    channels = _map_channels(job)
    if "train" not in channels:
        yield job.make_violation("InputDataConfig", "channel train is missing")
    for name, (field, content_type) in channels.items():
        if name not in ("train", "validation", "code"):
            yield job.make_violation(
                f"{field}.ChannelName", f"the algorithm has no channel {name!r}"
            )
        elif content_type and facts.find_file_format(content_type) is None:
            yield job.make_violation(
                f"{field}.ContentType", f"{content_type!r} is not a format that the algorithm reads"
            )


def _map_channels(job: Job) -> dict[str, tuple[str, str | None]]:
    """Return a mapping of a channel's name to its path and ContentType."""
    return {
        name: (f"InputDataConfig[{index}]", to_known_text(channel.get("ContentType")))
        for index, channel in job.iter_items("InputDataConfig")
        if (name := to_known_text(channel.get("ChannelName")))
    }


@rule(
    "warning",
    select=select_xgboost_ranges,
    reason="AWS's guide does not name it among the hyperparameters of XGBoost that can be tuned",
    fix=f"set it for all, or tune one of {', '.join(sorted(hyperparameters.TUNABLE))}",
    source=TUNING_SOURCE,
)
def xgboost_not_tunable(job_range: tuple[Job, Range]) -> Iterator[Violation]:
    job, search_range = job_range
    name = search_range.name or ""
    own_name = hyperparameters.resolve_alias(name)
    if (
        name in hyperparameters.list_hyperparameter_names(_parse_xgboost_version(job))
        and own_name not in hyperparameters.TUNABLE
    ):
        yield search_range.job.make_violation(f"{search_range.field}.Name", f"{name} is tuned")


def _iter_drawn_values(search_range: Range) -> Iterator[tuple[str, str]]:
    """Iterate over (field, text) of the known values that may be drawn: both bounds, or categories.

    ``field`` is a path in the range's entry.
    """
    for bound_name, end in (("MinValue", search_range.low), ("MaxValue", search_range.high)):
        if end is not None and math.isfinite(end):
            yield bound_name, str(int(end)) if end == int(end) else str(end)
    for index, value in enumerate(search_range.values):
        if isinstance(value, str):
            yield f"Values[{index}]", value
