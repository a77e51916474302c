"""Suggest constraints.json from statistics, and find violations in another data set.

Checks: data_type_check, completeness_check, categorical_values_check, baseline_drift_check,
missing_column_check, extra_column_check. ``is_non_negative`` is written and not checked: the guide
names no check for it.
"""

from typing import Any

import numpy as np

from trainyard.quality.statistics import FRACTIONAL, INTEGRAL, STRING, distance
from trainyard.quality.tables import Cells, DataError, Table, is_integer, numbers

DOMAIN = 20
"""Largest number of distinct values of a text column that are suggested as its domain."""
LINFINITY = "LInfinity"
MONITORING: dict[str, Any] = {
    "evaluate_constraints": "Enabled",
    "emit_metrics": "Enabled",
    "datatype_check_threshold": 1.0,
    "domain_content_threshold": 1.0,
    "distribution_constraints": {
        "perform_comparison": "Enabled",
        "comparison_threshold": 0.1,
        "comparison_method": "Robust",
        "categorical_comparison_threshold": 0.1,
        "categorical_drift_method": LINFINITY,
    },
}


def suggest(statistics: dict[str, Any]) -> dict[str, Any]:
    """Return constraints.json that the data of ``statistics`` keep."""
    features = [_suggest_feature(feature) for feature in statistics["features"]]
    return {"version": 0.0, "features": features, "monitoring_config": MONITORING}


def _suggest_feature(feature: dict[str, Any]) -> dict[str, Any]:
    feature_statistics = feature.get("numerical_statistics") or feature["string_statistics"]
    common = feature_statistics["common"]
    rows = common["num_present"] + common["num_missing"]
    constraint: dict[str, Any] = {
        "name": feature["name"],
        "inferred_type": feature["inferred_type"],
        "completeness": common["num_present"] / rows,
    }
    if "min" in feature_statistics:
        constraint["num_constraints"] = {"is_non_negative": feature_statistics["min"] >= 0}
    elif (buckets := _buckets(feature_statistics)) and len(buckets) <= min(
        DOMAIN, common["num_present"] / 2
    ):
        constraint["string_constraints"] = {"domains": [bucket["value"] for bucket in buckets]}
    return constraint


def _buckets(feature_statistics: dict[str, Any]) -> list[dict[str, Any]]:
    return feature_statistics.get("distribution", {}).get("categorical", {}).get("buckets", [])


def violations(
    table: Table,
    statistics: dict[str, Any],
    constraints: dict[str, Any],
    baseline: dict[str, Any] | None,
) -> list[dict[str, str]]:
    """Return the violations of ``constraints`` by ``table``, whose statistics these are.

    ``baseline``: the statistics that distributions are compared with; None compares none.
    """
    common = constraints.get("monitoring_config", MONITORING)
    features = {feature["name"]: feature for feature in constraints["features"]}
    results = _columns(set(table.columns), set(features))
    now = {feature["name"]: feature for feature in statistics["features"]}
    then = {feature["name"]: feature for feature in (baseline or {}).get("features", [])}
    for name in [name for name in features if name in table.columns]:
        config = _merge_constraints(common, features[name].get("monitoringConfigOverrides", {}))
        if config.get("evaluate_constraints", "Enabled") != "Enabled":
            continue
        results += _of_values(name, table.columns[name], features[name], config)
        if name in then:
            results += _of_distribution(name, now[name], then[name], config)
    return results


def _merge_constraints(common: dict[str, Any], specific: dict[str, Any]) -> dict[str, Any]:
    key = "distribution_constraints"
    return {**common, **specific, key: {**common.get(key, {}), **specific.get(key, {})}}


def _violation(name: str, check: str, description: str) -> dict[str, str]:
    return {"feature_name": name, "constraint_check_type": check, "description": description}


def _columns(have: set[str], expected_names: set[str]) -> list[dict[str, str]]:
    counts = (
        f"Number of columns in current dataset: {len(have)}, "
        f"Number of columns in baseline constraints: {len(expected_names)}"
    )
    results = []
    for kind, names in (("missing", expected_names - have), ("extra", have - expected_names)):
        if names:
            text = f"There are {kind} columns in current dataset. {counts}: {sorted(names)}"
            results.append(_violation(f"{kind.title()} columns", f"{kind}_column_check", text))
    return results


def _of_values(
    name: str, cells: Cells, constraint: dict[str, Any], config: dict[str, Any]
) -> list[dict[str, str]]:
    present = [cell for cell in cells if cell is not None]
    results = []
    complete, threshold = len(present) / len(cells), constraint.get("completeness", 0)
    if complete < threshold:
        text = f"Data completeness requirement is not met. Expected: {threshold:.2%}. Observed: "
        results.append(_violation(name, "completeness_check", f"{text}{complete:.2%}."))
    if not present:
        return results
    kind, least = constraint["inferred_type"], config.get("datatype_check_threshold", 1.0)
    if (share := _of_type(present, kind)) < least:
        text = (
            f"Data type match requirement is not met. Expected data type: {kind}, Expected match: "
            f"{100 * least}%. Observed: Only {100 * share}% of data is {kind}."
        )
        results.append(_violation(name, "data_type_check", text))
    if domain := constraint.get("string_constraints", {}).get("domains"):
        share = sum(cell in domain for cell in present) / len(present)
        least = config.get("domain_content_threshold", 1.0)
        if share < least:
            text = (
                "Categorical values requirement is not met. Expected match: "
                f"{100 * least}%. Observed: Only {100 * share}% of data is in the domain."
            )
            results.append(_violation(name, "categorical_values_check", text))
    return results


def _of_type(present: list[str], kind: str) -> float:
    """Return the share of values of the type: an integer is a fraction, too.

    A column of text may hold numbers, too, but not only: AWS's SDK's tests expect a violation then.
    """
    if kind == INTEGRAL:
        return sum(map(is_integer, present)) / len(present)
    if kind == FRACTIONAL:
        return float(np.mean(~np.isnan(numbers(list(present)))))
    if kind == STRING:
        return 0.0 if _of_type(present, FRACTIONAL) == 1 else 1.0
    return 1.0


def _of_distribution(
    name: str, now: dict[str, Any], then: dict[str, Any], config: dict[str, Any]
) -> list[dict[str, str]]:
    rules = config["distribution_constraints"]
    if rules.get("perform_comparison", "Enabled") != "Enabled":
        return []
    if "numerical_statistics" in now and "numerical_statistics" in then:
        limit = rules.get("comparison_threshold", 0.1)
        gap = _numbers_apart(now, then, rules.get("comparison_method") == "Robust")
    elif now["inferred_type"] == then["inferred_type"] == STRING:
        if (method := rules.get("categorical_drift_method", LINFINITY)) != LINFINITY:
            raise DataError(
                f"{name}: categorical_drift_method {method!r}: {LINFINITY} alone is computed here; "
                "AWS publishes no formula of another"
            )
        limit = rules.get("categorical_comparison_threshold", 0.1)
        gap = _words_apart(_buckets(now["string_statistics"]), _buckets(then["string_statistics"]))
    else:
        return []
    if gap <= limit:
        return []
    text = f"Baseline drift distance: {gap} exceeds threshold: {limit}"
    return [_violation(name, "baseline_drift_check", text)]


def _numbers_apart(now: dict[str, Any], then: dict[str, Any], robust: bool) -> float:
    parts = (side["numerical_statistics"].get("distribution") for side in (now, then))
    first, other = parts
    return distance(first["kll"], other["kll"], robust) if first and other else 0.0


def _words_apart(now: list[dict[str, Any]], then: list[dict[str, Any]]) -> float:
    """Return LInfinity: the largest difference of two values' shares; 0 without buckets."""
    if not now or not then:
        return 0.0
    shares = []
    for buckets in (now, then):
        total = sum(bucket["count"] for bucket in buckets)
        shares.append({bucket["value"]: bucket["count"] / total for bucket in buckets})
    values = shares[0].keys() | shares[1].keys()
    return max(abs(shares[0].get(value, 0) - shares[1].get(value, 0)) for value in values)
