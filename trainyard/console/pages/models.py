"""Pages of the model registry: groups of model packages, versions, and the runs that made them."""

from collections.abc import Mapping

from flask import Blueprint, Response, render_template, request

from trainyard.common.errors import ServiceError
from trainyard.console import account_cache
from trainyard.console.account_cache import Account, get_account, read_concurrently
from trainyard.console.app_hooks import get_application, render_panels
from trainyard.console.outcomes import (
    AT_ONCE,
    describe_package,
    find_champion,
    find_execution,
    find_last_change,
    find_package_arn,
    list_groups,
    list_versions,
    read_package_metrics,
    sort_by_importance,
    split_package_arn,
)
from trainyard.console.pages.charts import Line, render_chart

page = Blueprint("models", __name__)
page.add_app_template_filter(split_package_arn, "place")

COLUMNS = 6  # maximum metrics in the table of versions; the page of a version shows all of them


@page.get("/models")
def show_model_groups() -> Response:
    """Show all groups of model packages, and the packages without a group."""
    aws = get_account()
    summaries = list_groups(aws)[:AT_ONCE]
    names = [summary["ModelPackageGroupName"] for summary in summaries]
    versions_by_group = dict(
        zip(
            names,
            read_concurrently(lambda group_name: list_versions(aws, group_name), names),
            strict=True,
        )
    )
    parts = {
        "groups": render_template(
            "models/groups.html.j2",
            groups=summaries,
            versions=versions_by_group,
            champions={name: find_champion(aws, name) for name in names},
            older=max(0, len(list_groups(aws)) - AT_ONCE),
        ),
        "ungrouped": render_template("models/ungrouped.html.j2", packages=list_versions(aws, None)),
    }
    return account_cache.make_page_response("models.html.j2", parts, goes_on=False)


@page.get("/models/<group>")
def show_model_group(group: str) -> Response:
    """Show the versions of a group."""
    aws = get_account()
    everyone = list_versions(aws, group)
    arns = [summary["ModelPackageArn"] for summary in everyone[:AT_ONCE]]
    packages = read_concurrently(lambda arn: describe_package(aws, arn), arns)
    measurements = read_concurrently(lambda package: read_package_metrics(aws, package), packages)
    names = sort_by_importance(dict.fromkeys(name for values in measurements for name in values))
    numbers = [split_package_arn(package["ModelPackageArn"])[1] for package in packages]
    choice = request.args.get("metric", "")
    metric = choice if choice in names else next(iter(names), "")
    now = find_champion(aws, group)
    best = split_package_arn(now.arn)[1] if now.arn else ""
    values = {
        "group": group,
        "metric": metric,
        "names": names,
        "champion": now,
        "count": len(everyone),
    }
    parts = {
        "head": render_template("models/group-head.html.j2", **values),
        "chart": _render_chart(metric, dict(zip(numbers, measurements, strict=True)), best),
        "versions": render_template(
            "models/versions.html.j2",
            **values,
            packages=list(zip(packages, measurements, strict=True)),
            columns=list(dict.fromkeys([*filter(None, [metric]), *names]))[:COLUMNS],
            decided=find_last_change,
        ),
    }
    return account_cache.make_page_response(
        "models/group.html.j2", parts, goes_on=False, group=group
    )


def _render_chart(metric: str, measurements: Mapping[str, Mapping[str, float]], best: str) -> str:
    """Return a chart of a metric over the versions, or "" if fewer than two versions have it.

    Args:
        metric: name of the metric.
        measurements: mapping of version number to the version's metrics.
        best: version number of the champion, which is marked; empty if there is no champion.
    """
    having = {n: values[metric] for n, values in measurements.items() if metric in values}
    points = [(int(number), value) for number, value in having.items() if number.isdecimal()]
    if len(points) < 2:
        return ""
    points.sort()
    lines = [Line(metric, [number for number, _ in points], [value for _, value in points])]
    lines += [Line("champion", [n], [value], marks=True) for n, value in points if str(n) == best]
    return render_chart("versions-chart", f"{metric} by version", lines, x="version")


@page.get("/models/<group>/<version>")
def show_model_version(group: str, version: str) -> Response:
    """Show a version of a group, or a package without a group."""
    aws = get_account()
    package = describe_package(aws, find_package_arn(aws, group, version))
    in_group, execution = package.get("ModelPackageGroupName"), find_execution(package)
    values = {
        "package": package,
        "group": group,
        "version": version,
        "champion": find_champion(aws, in_group) if in_group else None,
        "decided": find_last_change(package),
        "execution": execution,
    }
    parts = {
        "head": render_template("models/version-head.html.j2", **values),
        "panels": _render_panels(aws, execution),
        "metrics": render_template(
            "models/metrics.html.j2", metrics=read_package_metrics(aws, package), package=package
        ),
        "inference": render_template("models/inference.html.j2", package=package),
        "metadata": render_template("models/metadata.html.j2", package=package),
    }
    address = {"group": group, "version": version}
    return account_cache.make_page_response(
        "models/version.html.j2", parts, goes_on=False, **address
    )


def _render_panels(aws: Account, execution: tuple[str, str] | None) -> str:
    """Return the HTML of the application's panels about the execution that registered the package.

    Return "" if the execution is not known or can no longer be read.
    """
    panels = [panel for panel in get_application().panels if panel.packages]
    if execution is None or not panels:
        return ""

    def read() -> str:
        steps = {step.name: step for step in aws.read_snapshot(*execution).steps}
        return "".join(render_panels(panels, aws.find_execution(*execution), steps))

    try:
        return aws.read_cached(("models panels", execution), read, 60)
    except ServiceError:
        # The run was deleted, or belongs to another account.
        return ""
