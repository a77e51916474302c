"""The registry: groups of model packages, their versions, and the runs that created them."""

from collections.abc import Mapping, Sequence

from flask import Blueprint, Response, render_template, request

from trainyard.common.errors import ServiceError
from trainyard.console import live_pages
from trainyard.console.account_cache import Account, account, each
from trainyard.console.app_hooks import application, read_panels
from trainyard.console.model_groups import (
    AT_ONCE,
    arn_of,
    champion,
    decided,
    described,
    groups,
    metrics,
    named,
    place_of,
    versions,
)
from trainyard.console.outcomes import importance
from trainyard.console.pages.charts import Line, chart

page = Blueprint("models", __name__)
page.add_app_template_filter(place_of, "place")

COLUMNS = 6  # metrics in the table of versions; the others are on the versions' pages


@page.get("/models")
def models() -> Response:
    """Show all groups of model packages, and the packages without a group."""
    here = account()
    listed = groups(here)[:AT_ONCE]
    shown = [one["ModelPackageGroupName"] for one in listed]
    found = dict(zip(shown, each(lambda one: versions(here, one), shown), strict=True))
    parts = {
        "groups": render_template(
            "models/groups.html.j2",
            groups=listed,
            versions=found,
            champions={name: champion(here, name) for name in shown},
            older=max(0, len(groups(here)) - AT_ONCE),
        ),
        "ungrouped": render_template("models/ungrouped.html.j2", packages=versions(here, None)),
    }
    return live_pages.answer("models.html.j2", parts, goes_on=False)


@page.get("/models/<group>")
def group(group: str) -> Response:
    """Show the versions of a group."""
    here = account()
    everyone = versions(here, group)
    listed = [one["ModelPackageArn"] for one in everyone[:AT_ONCE]]
    packages = each(lambda arn: described(here, arn), listed)
    measured = each(lambda package: metrics(here, package), packages)
    names = _compared(measured)
    numbers = [place_of(one["ModelPackageArn"])[1] for one in packages]
    chosen = request.args.get("metric", "")
    metric = chosen if chosen in names else next(iter(names), "")
    now = champion(here, group)
    best = place_of(now.arn)[1] if now.arn else ""
    values = {
        "group": group,
        "metric": metric,
        "names": names,
        "champion": now,
        "count": len(everyone),
    }
    parts = {
        "head": render_template("models/group-head.html.j2", **values),
        "chart": _chart(metric, dict(zip(numbers, measured, strict=True)), best),
        "versions": render_template(
            "models/versions.html.j2",
            **values,
            packages=list(zip(packages, measured, strict=True)),
            columns=list(dict.fromkeys([*filter(None, [metric]), *names]))[:COLUMNS],
            decided=decided,
        ),
    }
    return live_pages.answer("models/group.html.j2", parts, goes_on=False, group=group)


def _chart(metric: str, measured: Mapping[str, Mapping[str, float]], best: str) -> str:
    """Draw a metric over the versions; ``best``: the champion's version, which is marked."""
    having = {n: one[metric] for n, one in measured.items() if metric in one}
    known = [(int(number), value) for number, value in having.items() if number.isdecimal()]
    if len(known) < 2:
        return ""
    known.sort()
    lines = [Line(metric, [number for number, _ in known], [value for _, value in known])]
    lines += [Line("champion", [n], [value], marks=True) for n, value in known if str(n) == best]
    return chart("versions-chart", f"{metric} by version", lines, x="version")


@page.get("/models/<group>/<version>")
def version(group: str, version: str) -> Response:
    """Show a version of a group, or a package without a group."""
    here = account()
    package = described(here, arn_of(here, group, version))
    in_group, execution = package.get("ModelPackageGroupName"), named(package)
    values = {
        "package": package,
        "group": group,
        "version": version,
        "champion": champion(here, in_group) if in_group else None,
        "decided": decided(package),
        "execution": execution,
    }
    parts = {
        "head": render_template("models/version-head.html.j2", **values),
        "panels": _panels(here, execution),
        "metrics": render_template(
            "models/metrics.html.j2", metrics=metrics(here, package), package=package
        ),
        "inference": render_template("models/inference.html.j2", package=package),
        "metadata": render_template("models/metadata.html.j2", package=package),
    }
    where = {"group": group, "version": version}
    return live_pages.answer("models/version.html.j2", parts, goes_on=False, **where)


def _panels(here: Account, execution: tuple[str, str] | None) -> str:
    """Return an application's panels about the run that registered the package."""
    panels = [panel for panel in application().panels if panel.packages]
    if execution is None or not panels:
        return ""

    def read() -> str:
        steps = {step.name: step for step in here.snapshot(*execution).steps}
        return "".join(read_panels(panels, here.execution(*execution), steps))

    try:
        return here.lately(("models panels", execution), read, 60)
    except ServiceError:  # the run was deleted, or belongs to another account
        return ""


def _compared(measured: Sequence[Mapping[str, float]]) -> list[str]:
    """Return names of metrics, first those that differ among the versions, the most important
    first, and of these those that most versions have.
    """
    counts: dict[str, list[float]] = {}
    for one in measured:
        for name, value in one.items():
            counts.setdefault(name, []).append(value)

    def order(name: str) -> tuple[bool, tuple[int, bool, int], int]:
        return len(set(counts[name])) < 2, importance(name), -len(counts[name])

    return sorted(counts, key=order)
