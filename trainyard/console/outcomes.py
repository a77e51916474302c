"""Outcomes of executions: the main metric of each, its change, the verdict and the cost."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import A_DAY, Account
from trainyard.plan.prices import Prices, load_prices
from trainyard.runs.execution import Execution, Step
from trainyard.runs.job_cost import CHARGED_KEYS, Spent, compute_job_cost
from trainyard.runs.run_display import find_model_package, format_duration, read_latest_metrics
from trainyard.runs.run_values import read_package_numbers, read_report_numbers

# The model registry, by AWS's API: groups, versions, champions, metrics.

EXECUTION = re.compile(r"arn:[^/]+:pipeline/(?P<pipeline>[^/]+)/execution/(?P<execution>[^/]+)")

NO_GROUP = "-"  # placeholder for the group in the addresses of packages without a group
AT_ONCE = 50  # maximum groups on the page of groups, and versions on a group's page; newest first
NEWEST = {"SortBy": "CreationTime", "SortOrder": "Descending"}

MOST = 60  # maximum number of metrics that are listed for one package


@dataclass(frozen=True, slots=True)
class Champion:
    """ARNs of a group's newest Approved version, and of the next older Approved version."""

    arn: str | None
    before: str | None


def split_package_arn(arn: str) -> tuple[str, str]:
    """Return (group, version) of a package's ARN, or (``-``, name) if it has no group."""
    _, _, rest = arn.partition(":model-package/")
    group, slash, version = (rest or arn).partition("/")
    return (group, version) if slash else (NO_GROUP, group)


def list_groups(account: Account) -> list[dict[str, Any]]:
    """Return the summaries of all model package groups, the newest first."""
    return account.list_all("list_model_package_groups", "ModelPackageGroupSummaryList", **NEWEST)


def list_versions(account: Account, group: str | None) -> list[dict[str, Any]]:
    """Return the summaries of a group's packages, or of those without a group; newest first."""
    which = {"ModelPackageGroupName": group} if group else {"ModelPackageType": "Unversioned"}
    return account.list_all("list_model_packages", "ModelPackageSummaryList", **NEWEST, **which)


def find_champion(account: Account, group: str) -> Champion:
    """Return the group's current champion."""
    approved_arns = [
        version["ModelPackageArn"]
        for version in list_versions(account, group)
        if version.get("ModelApprovalStatus") == "Approved"
    ]
    return Champion(*(approved_arns + [None, None])[:2])


def describe_package(account: Account, package: str) -> dict[str, Any]:
    """Return the response of DescribeModelPackage.

    ``package`` is an ARN, or the name of a package without a group.
    """
    return account.call_sagemaker("describe_model_package", ModelPackageName=package)


def find_package_arn(account: Account, group: str, version: str) -> str:
    """Return the ARN of a package by its group and version, or its name if it has no group."""
    if group == NO_GROUP:
        return version
    description = account.call_sagemaker(
        "describe_model_package_group", 60, ModelPackageGroupName=group
    )
    of_group: str = description["ModelPackageGroupArn"]
    return f"{of_group.replace(':model-package-group/', ':model-package/', 1)}/{version}"


def read_package_metrics(account: Account, package: Mapping[str, Any]) -> dict[str, float]:
    """Return a package's numbers by path: from its customer metadata, then its ModelQuality report.

    Reports in S3 are skipped if they cannot be read, or if they were written again after the
    package was registered.
    """
    registration_time = package.get("CreationTime")

    def report(uri: str) -> dict[str, float]:
        """Return the numbers of the report at ``uri``, cached for 300 seconds."""
        key = ("models report", uri, registration_time)
        return account.read_cached(
            key, lambda: read_report_numbers(account.s3, uri, registration_time), 300
        )

    numbers = read_package_numbers(package, report)
    return dict(list(numbers.items())[:MOST])


def find_last_change(package: Mapping[str, Any]) -> tuple[str, Any]:
    """Return (user, time) of the package's last change; the user is "" if AWS returns none."""
    user = package.get("LastModifiedBy") or {}
    user_name = user.get("UserProfileName") or (user.get("IamIdentity") or {}).get("Arn") or ""
    return str(user_name), package.get("LastModifiedTime")


def find_execution(package: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (pipeline, id) of the execution in the package's metadata, or None."""
    arns = [
        (package.get("MetadataProperties") or {}).get("GeneratedBy"),
        *(package.get("CustomerMetadataProperties") or {}).values(),
    ]
    matches = (EXECUTION.fullmatch(arn) for arn in arns if isinstance(arn, str))
    return next(((run["pipeline"], run["execution"]) for run in matches if run), None)


Jobs = dict[str, Mapping[str, Any]]
"""Step to the description of what it is charged for (``Account.describe_charged``), or {}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of an execution in USD, as far as it is known."""

    so_far: float = 0.0  # sum of the known costs
    a_second: float = 0.0  # USD per second by which it grows as long as nothing changes
    unknown: tuple[str, ...] = ()  # steps with unknown costs
    estimated: bool = False


def compute_step_costs(
    steps: Iterable[Step],
    jobs: Mapping[str, Mapping[str, Any]],
    prices: Prices | None,
    now: datetime,
) -> dict[str, Spent | None]:
    """Return the cost until ``now`` of each step that has begun, or None if it is not known."""
    free = Spent(machines="", seconds=0.0, usd=0.0, usd_a_second=0.0, estimated=False)
    costs_by_step: dict[str, Spent | None] = {}
    for step in steps:
        if step.charged_job and jobs.get(step.name) and prices and not (step.cached or step.reused):
            costs_by_step[step.name] = compute_job_cost(
                step.charged_job[0], jobs[step.name], prices, now
            )
        else:
            is_free = step.cached or step.reused or not CHARGED_KEYS & set(step.metadata)
            costs_by_step[step.name] = free if is_free else None
    return costs_by_step


def sum_costs(costs_by_step: Mapping[str, Spent | None]) -> Cost:
    """Return the sum of the steps' costs."""
    known_costs = [step_cost for step_cost in costs_by_step.values() if step_cost]
    return Cost(
        so_far=sum(step_cost.usd or 0.0 for step_cost in known_costs),
        a_second=sum(step_cost.usd_a_second or 0.0 for step_cost in known_costs),
        unknown=tuple(n for n, cost in costs_by_step.items() if cost is None or cost.usd is None),
        estimated=any(step_cost.estimated for step_cost in known_costs),
    )


_QUALITY = re.compile(
    r"loss|perplexity|bits_per|accuracy|auc|f1|precision|recall|error|rmse|mse|mae|r2|bleu|rouge"
    r"|score|likelihood|reward|iou|map(?![a-z])|ndcg|logloss|objective",
    re.IGNORECASE,
)
_SETTING = re.compile(
    r"seed|steps?$|epoch|rate|second|time|count|samples|examples|tokens|bytes|memory|threshold"
    r"|confidence|version|size|limit|low$|high$|standard_(?:error|deviation)|\.\d+(?:\.|$)|look",
    re.IGNORECASE,
)
_HELD_OUT = re.compile(r"eval|valid|test|report", re.IGNORECASE)


def make_importance_key(name: str) -> tuple[int, bool, int]:
    """Return a sort key for a metric's name.

    Metrics of quality come first, and settings and counts last. Within each of these, held-out
    metrics come before training metrics, and then shorter paths before longer ones.
    """
    rank = 2 if _SETTING.search(name) else 0 if _QUALITY.search(name) else 1
    return rank, not _HELD_OUT.search(name), name.count(".")


def sort_by_importance(names: Iterable[str]) -> list[str]:
    """Sort names of metrics by importance. Equally important ones keep their order."""
    return sorted(names, key=make_importance_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an execution achieved, as far as it is known."""

    metric: str = ""  # name of the main metric
    value: float | None = None
    champion: float | None = None  # the champion's value of that metric at that time
    verdict: str = ""  # ``pass`` or ``reject`` of a gate, or ``registered``
    cost: Cost | None = None

    @property
    def change(self) -> float | None:
        """Return the difference from the champion's value, or None if one of them is not known."""
        if self.value is None or self.champion is None:
            return None
        return self.value - self.champion


Judge = Callable[[Execution, Mapping[str, Step]], Outcome | None]
"""Function from (execution, its steps by name) to its outcome by an application's own rules, or
None if it is not one of the application's executions."""


def defer_judgement(execution: Execution, steps: Mapping[str, Step]) -> Outcome | None:
    """Return None, so that the outcome is read from the model package or the training jobs."""
    return None


def read_outcome(account: Account, pipeline: str, execution: str, judge: Judge) -> Outcome:
    """Return the outcome of an ended execution. Parts that AWS refuses are left out."""
    try:
        steps = {step.name: step for step in account.read_snapshot(pipeline, execution).steps}
    except ServiceError:
        return Outcome()
    jobs: Jobs = {}
    for name, step in steps.items():
        try:
            jobs[name] = account.describe_charged(step)
        except ServiceError:
            # The job may have been deleted.
            continue
    region = str(account.sagemaker.meta.region_name)
    prices = account.read_cached(("prices", region), lambda: load_prices(region), A_DAY)
    paid = sum_costs(compute_step_costs(steps.values(), jobs, prices, datetime.now(UTC)))
    try:
        result = judge(account.find_execution(pipeline, execution), steps)
        result = (
            result
            or _judge_package(account, find_model_package(list(steps.values())))
            or _judge_training(jobs)
        )
    except ServiceError:
        result = _judge_training(jobs)
    return replace(result, cost=paid)


def _judge_package(account: Account, package: str | None) -> Outcome | None:
    """Return the outcome according to the metrics of the registered package and of the champion.

    Return None if there is no package.
    """
    if package is None:
        return None
    values = read_package_metrics(account, describe_package(account, package))
    name = next(iter(sort_by_importance(values)), "")
    result = Outcome(metric=name, value=values.get(name), verdict="registered")
    group = split_package_arn(package)[0]
    best = find_champion(account, group).arn if group != "-" else None
    if best and best != package:
        result = replace(
            result,
            champion=read_package_metrics(account, describe_package(account, best)).get(name),
        )
    return result


def _judge_training(jobs: Jobs) -> Outcome:
    """Return the outcome according to the last metrics of the training jobs."""
    values = {
        name: value for job in jobs.values() for name, value in read_latest_metrics(job).items()
    }
    name = next(iter(sort_by_importance(values)), "")
    return Outcome(metric=name, value=values.get(name))


# Filters of the console's templates for times, durations and sums.

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def render_time(when: datetime | None) -> Markup:
    """Return an absolute time in this machine's time zone, to the second; empty for None."""
    if when is None:
        return Markup()
    local = when.astimezone()
    return Markup('<time datetime="{}">{}</time>').format(
        local.isoformat(), local.strftime("%Y-%m-%d %H:%M:%S %Z")
    )


def render_duration(start_time: datetime | None, end_time: datetime | None) -> Markup:
    """Return a duration as HTML; empty if it has not started.

    If it has not ended, the browser counts it up.
    """
    if start_time is None:
        return Markup()
    if end_time is None:
        now = datetime.now(start_time.tzinfo)
        text = format_duration((now - start_time).total_seconds())
        return Markup('<span data-since="{}">{}</span>').format(start_time.isoformat(), text)
    return Markup("<span>{}</span>").format(
        format_duration((end_time - start_time).total_seconds())
    )


def format_usd(amount: float | None) -> str:
    """Return USD such as ``$12.30``, or ``< $0.01`` for a smaller sum above 0; empty for None."""
    if amount is None:
        return ""
    return "< $0.01" if 0 < amount < 0.005 else f"${amount:,.2f}"


def render_cost(amount: float | None, a_second: float | None) -> Markup:
    """Return USD as HTML. If the sum grows by ``a_second`` per second, the browser counts it up."""
    if amount is None:
        return Markup()
    if not a_second:
        return Markup("<span>{}</span>").format(format_usd(amount))
    # The browser counts up from one time: when the sum would have been 0 at this rate.
    since = datetime.now(UTC) - timedelta(seconds=amount / a_second)
    return Markup('<span data-paid-since="{}" data-rate="{}">{}</span>').format(
        since.isoformat(), a_second, format_usd(amount)
    )


_INVISIBLE = re.compile(
    r"[\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def dump_exact_json(value: Any) -> str:
    """Return indented JSON with invisible characters escaped."""
    return _INVISIBLE.sub(
        lambda match: f"\\u{ord(match[0]):04x}",
        json.dumps(value, indent=2, default=str, ensure_ascii=False),
    )


def format_number(value: Any) -> str:
    """Return a number as text with six significant digits, or any other value as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:,.6g}"


def sanitize_text(text: Any) -> str:
    """Return text without terminal escape sequences.

    Each character that is invisible or changes the direction of writing is replaced by U+FFFD.
    """
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", _ANSI.sub("", str(text)))


FILTERS: dict[str, Callable[..., Any]] = {
    "moment": render_time,
    "duration": format_duration,
    "usd": format_usd,
    "figure": format_number,
    "plain": sanitize_text,
    "exact_json": dump_exact_json,
}
"""Filters: name in the templates to function."""
