"""Outcomes of runs: the metric that each is about, its change, verdict and cost."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import A_DAY, Account
from trainyard.plan.prices import Prices, load
from trainyard.runs.execution import Execution, Step
from trainyard.runs.job_cost import CHARGED_KEYS, Spent, spent
from trainyard.runs.run_display import duration, latest, model_package
from trainyard.runs.run_values import in_report, of_package

# The model registry by AWS's API: groups, versions, champions, metrics.

EXECUTION = re.compile(r"arn:[^/]+:pipeline/(?P<pipeline>[^/]+)/execution/(?P<execution>[^/]+)")

NO_GROUP = "-"  # placeholder for the group in addresses of packages without a group
AT_ONCE = 50  # groups on the page of all, and versions on a group's: the newest
NEWEST = {"SortBy": "CreationTime", "SortOrder": "Descending"}

MOST = 60  # most metrics listed for one package


@dataclass(frozen=True, slots=True)
class Champion:
    """ARNs of a group's newest Approved version, and of the Approved one before it."""

    arn: str | None
    before: str | None


def place_of(arn: str) -> tuple[str, str]:
    """Return (group, version) of a package's ARN; (``-``, name) for a package without a group."""
    _, _, rest = arn.partition(":model-package/")
    group, slash, version = (rest or arn).partition("/")
    return (group, version) if slash else (NO_GROUP, group)


def groups(account: Account) -> list[dict[str, Any]]:
    """Return ModelPackageGroupSummaryList, the newest first."""
    return account.all_of("list_model_package_groups", "ModelPackageGroupSummaryList", **NEWEST)


def versions(account: Account, group: str | None) -> list[dict[str, Any]]:
    """Return summaries of a group's packages, or of those without a group, the newest first."""
    which = {"ModelPackageGroupName": group} if group else {"ModelPackageType": "Unversioned"}
    return account.all_of("list_model_packages", "ModelPackageSummaryList", **NEWEST, **which)


def champion(account: Account, group: str) -> Champion:
    """Return the group's present champion."""
    approved_arns = [
        version["ModelPackageArn"]
        for version in versions(account, group)
        if version.get("ModelApprovalStatus") == "Approved"
    ]
    return Champion(*(approved_arns + [None, None])[:2])


def describe_package(account: Account, package: str) -> dict[str, Any]:
    """Return DescribeModelPackage's answer; ``package``: an ARN, or the name of a package without a
    group.
    """
    return account.ask("describe_model_package", ModelPackageName=package)


def arn_of(account: Account, group: str, version: str) -> str:
    """Return a package's ARN by its group and version; its name if it has no group."""
    if group == NO_GROUP:
        return version
    description = account.ask("describe_model_package_group", 60, ModelPackageGroupName=group)
    of_group: str = description["ModelPackageGroupArn"]
    return f"{of_group.replace(':model-package-group/', ':model-package/', 1)}/{version}"


def metrics(account: Account, package: Mapping[str, Any]) -> dict[str, float]:
    """Return a package's numbers: from its customer metadata, then from its ModelQuality report in
    S3, by path.

    Unreadable reports are skipped, and reports written again after the package was registered.
    """
    registration_time = package.get("CreationTime")

    def report(uri: str) -> dict[str, float]:
        key = ("models report", uri, registration_time)
        return account.read_cached(key, lambda: in_report(account.s3, uri, registration_time), 300)

    numbers = of_package(package, report)
    return dict(list(numbers.items())[:MOST])


def find_decision(package: Mapping[str, Any]) -> tuple[str, Any]:
    """Return (user, time) of the package's last change; empty if AWS does not report it."""
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
"""Step → description of what it is charged for (``Account.charged``); empty without a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of an execution in USD, as far as known."""

    so_far: float = 0.0  # sum of the known costs
    a_second: float = 0.0  # USD per second by which it grows while nothing changes
    unknown: tuple[str, ...] = ()  # steps with unknown costs
    estimated: bool = False


def costs(
    steps: Iterable[Step],
    jobs: Mapping[str, Mapping[str, Any]],
    prices: Prices | None,
    now: datetime,
) -> dict[str, Spent | None]:
    """Return step that has begun → its cost until ``now``; None if it is not known."""
    free = Spent(machines="", seconds=0.0, usd=0.0, usd_a_second=0.0, estimated=False)
    costs_by_step: dict[str, Spent | None] = {}
    for step in steps:
        if step.charged_job and jobs.get(step.name) and prices and not (step.cached or step.reused):
            costs_by_step[step.name] = spent(step.charged_job[0], jobs[step.name], prices, now)
        else:
            is_free = step.cached or step.reused or not CHARGED_KEYS & set(step.metadata)
            costs_by_step[step.name] = free if is_free else None
    return costs_by_step


def cost(of_steps: Mapping[str, Spent | None]) -> Cost:
    """Return the sum of the steps' costs."""
    known_costs = [step_cost for step_cost in of_steps.values() if step_cost]
    return Cost(
        so_far=sum(step_cost.usd or 0.0 for step_cost in known_costs),
        a_second=sum(step_cost.usd_a_second or 0.0 for step_cost in known_costs),
        unknown=tuple(
            n for n, step_cost in of_steps.items() if step_cost is None or step_cost.usd is None
        ),
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


def importance(name: str) -> tuple[int, bool, int]:
    """Return a sort key of a metric's name: quality first, held out before training; settings,
    counts and members of lists last; of equals the shorter path first.
    """
    rank = 2 if _SETTING.search(name) else 0 if _QUALITY.search(name) else 1
    return rank, not _HELD_OUT.search(name), name.count(".")


def by_importance(names: Iterable[str]) -> list[str]:
    """Sort names of metrics, the most important first; equals keep their order."""
    return sorted(names, key=importance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run achieved, as far as it is known."""

    metric: str = ""  # name of the metric that it is about
    value: float | None = None
    champion: float | None = None  # the champion's value of that metric, at that time
    verdict: str = ""  # ``pass`` or ``reject`` of a gate, or ``registered``
    cost: Cost | None = None

    @property
    def change(self) -> float | None:
        """Difference from the champion's value; None if one of them is not known."""
        if self.value is None or self.champion is None:
            return None
        return self.value - self.champion


Judge = Callable[[Execution, Mapping[str, Step]], Outcome | None]
"""(execution, its steps by name) → its outcome by an application's own rules; None: not its run."""


def no_judge(execution: Execution, steps: Mapping[str, Step]) -> Outcome | None:
    """Judge nothing: the outcome is read from the model package or the training jobs."""
    return None


def outcome(account: Account, pipeline: str, execution: str, judge: Judge) -> Outcome:
    """Read the outcome of an ended run; parts that AWS refuses are left out."""
    try:
        steps = {step.name: step for step in account.snapshot(pipeline, execution).steps}
    except ServiceError:
        return Outcome()
    jobs: Jobs = {}
    for name, step in steps.items():
        try:
            jobs[name] = account.describe_charged(step)
        except ServiceError:
            # A job may have been deleted.
            continue
    region = str(account.sagemaker.meta.region_name)
    prices = account.read_cached(("prices", region), lambda: load(region), A_DAY)
    paid = cost(costs(steps.values(), jobs, prices, datetime.now(UTC)))
    try:
        result = judge(account.execution(pipeline, execution), steps)
        result = (
            result
            or _judge_package(account, model_package(list(steps.values())))
            or _judge_training(jobs)
        )
    except ServiceError:
        result = _judge_training(jobs)
    return replace(result, cost=paid)


def _judge_package(account: Account, package: str | None) -> Outcome | None:
    """Return the outcome by the metrics of the registered package, beside its group's champion."""
    if package is None:
        return None
    values = metrics(account, describe_package(account, package))
    name = next(iter(by_importance(values)), "")
    result = Outcome(metric=name, value=values.get(name), verdict="registered")
    group = place_of(package)[0]
    best = champion(account, group).arn if group != "-" else None
    if best and best != package:
        result = replace(
            result, champion=metrics(account, describe_package(account, best)).get(name)
        )
    return result


def _judge_training(jobs: Jobs) -> Outcome:
    values = {name: value for job in jobs.values() for name, value in latest(job).items()}
    name = next(iter(by_importance(values)), "")
    return Outcome(metric=name, value=values.get(name))


# Filters of the console's templates for times, durations and sums.

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def moment(when: datetime | None) -> Markup:
    """Return an absolute time in this machine's zone, to the second; empty for None."""
    if when is None:
        return Markup()
    local = when.astimezone()
    return Markup('<time datetime="{}">{}</time>').format(
        local.isoformat(), local.strftime("%Y-%m-%d %H:%M:%S %Z")
    )


def lasting(start_time: datetime | None, end_time: datetime | None) -> Markup:
    """Return a duration; that of a running thing counts on in the browser. Empty before the
    start.
    """
    if start_time is None:
        return Markup()
    if end_time is None:
        now = datetime.now(start_time.tzinfo)
        text = duration((now - start_time).total_seconds())
        return Markup('<span data-since="{}">{}</span>').format(start_time.isoformat(), text)
    return Markup("<span>{}</span>").format(duration((end_time - start_time).total_seconds()))


def usd(amount: float | None) -> str:
    """Return ``$12.30``; ``< $0.01`` for a smaller sum above 0; empty for None."""
    if amount is None:
        return ""
    return "< $0.01" if 0 < amount < 0.005 else f"${amount:,.2f}"


def costing(amount: float | None, a_second: float | None) -> Markup:
    """Return a sum; if it grows by ``a_second`` USD, the browser counts on."""
    if amount is None:
        return Markup()
    if not a_second:
        return Markup("<span>{}</span>").format(usd(amount))
    # The browser has one number to count from: when the sum would have been 0 at this rate.
    since = datetime.now(UTC) - timedelta(seconds=amount / a_second)
    return Markup('<span data-paid-since="{}" data-rate="{}">{}</span>').format(
        since.isoformat(), a_second, usd(amount)
    )


_INVISIBLE = re.compile(
    r"[\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def exact_json(value: Any) -> str:
    """Return indented JSON with invisible characters escaped."""
    return _INVISIBLE.sub(
        lambda match: f"\\u{ord(match[0]):04x}",
        json.dumps(value, indent=2, default=str, ensure_ascii=False),
    )


def figure(value: Any) -> str:
    """Return a number with six digits, ``NaN`` and ``inf`` as such; other values as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:,.6g}"


def plain(text: Any) -> str:
    """Return text without terminal escapes, with a mark for each character that is invisible or
    changes the direction of writing.
    """
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", _ANSI.sub("", str(text)))


FILTERS: dict[str, Callable[..., Any]] = {
    "moment": moment,
    "duration": duration,
    "usd": usd,
    "figure": figure,
    "plain": plain,
    "exact_json": exact_json,
}
"""Name in the templates → function."""
