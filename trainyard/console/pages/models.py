"""The registry: groups of model packages, their versions, and where each came from."""

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flask import Blueprint, render_template, request

from trainyard.common.errors import ServiceError
from trainyard.console import live
from trainyard.console.account import Account, account
from trainyard.console.application import application
from trainyard.console.card import blocks
from trainyard.console.champions import picture
from trainyard.console.lineage.graph import trace
from trainyard.console.lineage.maker import named, trained
from trainyard.console.lineage.picture import drawn
from trainyard.console.panels import of_packages, read_panels
from trainyard.console.registry import (
    AT_ONCE,
    THREADS,
    UNGROUPED,
    all_described,
    all_metrics,
    arn_of,
    bytes_of,
    champion,
    decided,
    described,
    groups,
    metrics,
    models_of,
    place_of,
    versions,
)
from trainyard.console.serving import Endpoint, endpoints

page = Blueprint("models", __name__)

COLUMNS = 6
"""Metrics in the table of versions; the others are on the versions' pages."""


def _models_stamp() -> Hashable:
    here = account()
    found = [versions(here, one) for one in _shown_groups(here)]
    return repr((groups(here), found, _endpoints(here)))


@live.page(page, "/models", template="models.html.j2", stamp=_models_stamp)
def models() -> live.Fragments:
    """Every group of model packages, the packages in none, and the endpoints."""
    here = account()
    shown = _shown_groups(here)
    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(shown, pool.map(lambda one: versions(here, one), shown), strict=True))
    served, unknown = _serving(here)
    return {
        "groups": render_template(
            "models/groups.html.j2",
            groups=groups(here)[_first() : _first() + AT_ONCE],
            versions=found,
            champions={name: champion(here, name) for name in shown},
            served=served,
            pages=_pages(len(groups(here))),
        ),
        "ungrouped": render_template("models/ungrouped.html.j2", packages=versions(here, None)),
        "endpoints": render_template(
            "models/endpoints.html.j2", endpoints=_endpoints(here), unknown=unknown
        ),
    }


def _group_stamp(group: str) -> Hashable:
    return repr(versions(account(), group))


@live.page(page, "/models/<group>", template="models/group.html.j2", stamp=_group_stamp)
def group(group: str) -> live.Fragments:
    """The versions of one group, with the line of its champions."""
    here = account()
    everyone = versions(here, group)
    packages = all_described(here, everyone[_first() : _first() + AT_ONCE])
    measured = all_metrics(here, packages)
    names = _compared(measured)
    chosen = request.args.get("metric", "")
    metric = chosen if chosen in names else next(iter(names), "")
    now = champion(here, group)
    served, unknown = _serving(here)
    told = {
        "group": group,
        "metric": metric,
        "names": names,
        "champion": now,
        "pages": _pages(len(everyone)),
    }
    return {
        "head": render_template(
            "models/group-head.html.j2", **told, count=len(everyone), served=served, unknown=unknown
        ),
        "line": render_template(
            "models/line.html.j2",
            **told,
            picture=picture(packages, [one.get(metric) for one in measured], now.arn),
        ),
        "versions": render_template(
            "models/versions.html.j2",
            **told,
            packages=list(zip(packages, measured, strict=True)),
            columns=list(dict.fromkeys([*filter(None, [metric]), *names]))[:COLUMNS],
            served=served,
            decided=decided,
        ),
    }


def _version_stamp(group: str, version: str) -> Hashable:
    here = account()
    return repr((described(here, arn_of(here, group, version)), _group_of(here, group)))


@live.page(
    page, "/models/<group>/<version>", template="models/version.html.j2", stamp=_version_stamp
)
def version(group: str, version: str) -> live.Fragments:
    """One version of a group, or a package in none."""
    here = account()
    package = described(here, arn_of(here, group, version))
    served, unknown = _serving(here)
    in_group, execution = package.get("ModelPackageGroupName"), named(package)
    told = {
        "package": package,
        "group": group,
        "version": version,
        "champion": champion(here, in_group) if in_group else None,
        "serving": served.get(package["ModelPackageArn"], ()),
        "unknown": unknown,
        "decided": decided(package),
        "execution": execution,
        "trained": None if execution else trained(here, package),
    }
    return {
        "head": render_template("models/version-head.html.j2", **told),
        "panels": _panels(here, execution),
        "metrics": render_template(
            "models/metrics.html.j2", metrics=metrics(here, package), package=package
        ),
        "inference": render_template(
            "models/inference.html.j2",
            package=package,
            sizes={uri: bytes_of(here, uri) for uri in models_of(package)},
        ),
        "metadata": render_template("models/metadata.html.j2", package=package),
        "card": render_template("models/card.html.j2", **_card(package)),
    }


@page.get("/models/<group>/<version>/lineage")
def lineage(group: str, version: str) -> str:
    """Where the package came from, and where it is served, as a graph."""
    here = account()
    package = described(here, arn_of(here, group, version))
    found = trace(here, package, named(package) or trained(here, package))
    return render_template(
        "models/lineage.html.j2",
        group=group,
        version=version,
        lineage=found,
        picture=drawn(found),
    )


def _panels(here: Account, execution: tuple[str, str] | None) -> str:
    """What an application shows of the run that registered the package."""
    panels = of_packages(application().panels)
    if execution is None or not panels:
        return ""

    def read() -> str:
        steps = {step.name: step for step in here.snapshot(*execution).steps}
        return "".join(read_panels(panels, here.execution(*execution), steps))

    try:
        return here.lately(("models panels", execution), read, 60)
    except ServiceError:  # the run is gone, or is another account's
        return ""


def _shown_groups(here: Account) -> list[str]:
    found = groups(here)[_first() : _first() + AT_ONCE]
    return [one["ModelPackageGroupName"] for one in found]


def _group_of(here: Account, group: str) -> Any:
    return () if group == UNGROUPED else versions(here, group)


def _endpoints(here: Account) -> Sequence[Endpoint]:
    try:
        return endpoints(here)
    except ServiceError:
        return ()


def _serving(here: Account) -> tuple[dict[str, list[str]], str]:
    """(package's ARN → the endpoints that serve it, why that cannot be known; empty)."""
    found: dict[str, list[str]] = {}
    try:
        for one in endpoints(here):
            for arn in one.packages:
                found.setdefault(arn, []).append(one.name)
    except ServiceError as error:
        return {}, str(error)
    return found, ""


def _compared(measured: Sequence[Mapping[str, float]]) -> list[str]:
    """Names of metrics, first those that differ among the versions, that are no part of a larger
    thing, such as a matrix or a deviation, and that most versions have."""
    counts: dict[str, list[float]] = {}
    for one in measured:
        for name, value in one.items():
            counts.setdefault(name, []).append(value)

    def order(name: str) -> tuple[bool, int, int]:
        return len(set(counts[name])) < 2, name.count("."), -len(counts[name])

    return sorted(counts, key=order)


def _card(package: Mapping[str, Any]) -> dict[str, Any]:
    given = package.get("ModelCard") or {}
    content = given.get("ModelCardContent") or ""
    try:
        return {"status": given.get("ModelCardStatus"), "blocks": blocks(content), "raw": ""}
    except ValueError:  # AWS checks it, an emulator or an older service may not
        return {"status": given.get("ModelCardStatus"), "blocks": [], "raw": content}


def _first() -> int:
    number = request.args.get("page", "1")
    return (max(1, int(number)) - 1) * AT_ONCE if number.isdecimal() and len(number) < 6 else 0


def _pages(count: int) -> tuple[int, int]:
    """(this page, how many there are)."""
    return _first() // AT_ONCE + 1, max(1, -(-count // AT_ONCE))


@page.app_template_filter("place")
def place(arn: str) -> tuple[str, str]:
    """(group, version) of a package's ARN, for its address."""
    return place_of(arn)
