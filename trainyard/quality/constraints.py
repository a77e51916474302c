"""Suggest constraints.json from statistics, and find violations of it in another data set.

The checks are data_type_check, completeness_check, categorical_values_check, baseline_drift_check,
missing_column_check and extra_column_check. ``is_non_negative`` is written but not checked, because
the developer guide names no check for it.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from trainyard.quality.model_quality import Cells, DataError, Table, is_integer, parse_numbers

DOMAIN = 20
"""Largest number of distinct values of a text column for which a domain is suggested."""
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


def suggest_constraints(statistics: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a constraints.json that the data behind ``statistics`` satisfies."""
    features = [_suggest_feature(feature) for feature in statistics["features"]]
    return {"version": 0.0, "features": features, "monitoring_config": MONITORING}


def _suggest_feature(feature: dict[str, Any]) -> dict[str, Any]:
    """Return the suggested constraints of one column, given its statistics."""
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
    elif (buckets := _get_buckets(feature_statistics)) and len(buckets) <= min(
        DOMAIN, common["num_present"] / 2
    ):
        constraint["string_constraints"] = {"domains": [bucket["value"] for bucket in buckets]}
    return constraint


def _get_buckets(feature_statistics: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the value counts of a text column; empty if they were not written."""
    return feature_statistics.get("distribution", {}).get("categorical", {}).get("buckets", [])


def find_violations(
    table: Table,
    statistics: dict[str, Any],
    constraints: dict[str, Any],
    baseline: dict[str, Any] | None,
) -> list[dict[str, str]]:
    """Return the violations of the constraints by a data set.

    Args:
        table: the data set.
        statistics: statistics of ``table``.
        constraints: content of constraints.json.
        baseline: statistics to compare distributions with; None to compare none.
    """
    common = constraints.get("monitoring_config", MONITORING)
    features = {feature["name"]: feature for feature in constraints["features"]}
    have = set(table.columns)
    expected_names = set(features)
    counts = (
        f"Number of columns in current dataset: {len(have)}, "
        f"Number of columns in baseline constraints: {len(expected_names)}"
    )
    results = []
    for kind, names in (("missing", expected_names - have), ("extra", have - expected_names)):
        if names:
            text = f"There are {kind} columns in current dataset. {counts}: {sorted(names)}"
            results.append(_make_violation(f"{kind.title()} columns", f"{kind}_column_check", text))
    now = {feature["name"]: feature for feature in statistics["features"]}
    then = {feature["name"]: feature for feature in (baseline or {}).get("features", [])}
    for name in [name for name in features if name in table.columns]:
        overrides = features[name].get("monitoringConfigOverrides", {})
        config = {**common, **overrides}
        # An override of one distribution constraint leaves the others as they are.
        key = "distribution_constraints"
        config[key] = {**common.get(key, {}), **overrides.get(key, {})}
        if config.get("evaluate_constraints", "Enabled") != "Enabled":
            continue
        results += _check_values(name, table.columns[name], features[name], config)
        if name in then:
            results += _check_distribution(name, now[name], then[name], config)
    return results


def _make_violation(name: str, check: str, description: str) -> dict[str, str]:
    return {"feature_name": name, "constraint_check_type": check, "description": description}


def _check_values(
    name: str, cells: Cells, constraint: dict[str, Any], config: dict[str, Any]
) -> list[dict[str, str]]:
    """Return a column's violations of completeness, data type and categorical values."""
    present = [cell for cell in cells if cell is not None]
    results = []
    complete, threshold = len(present) / len(cells), constraint.get("completeness", 0)
    if complete < threshold:
        text = f"Data completeness requirement is not met. Expected: {threshold:.2%}. Observed: "
        results.append(_make_violation(name, "completeness_check", f"{text}{complete:.2%}."))
    if not present:
        return results
    kind, min_share = constraint["inferred_type"], config.get("datatype_check_threshold", 1.0)
    if (share := _measure_type_share(present, kind)) < min_share:
        text = (
            f"Data type match requirement is not met. Expected data type: {kind}, Expected match: "
            f"{100 * min_share}%. Observed: Only {100 * share}% of data is {kind}."
        )
        results.append(_make_violation(name, "data_type_check", text))
    if domain := constraint.get("string_constraints", {}).get("domains"):
        share = sum(cell in domain for cell in present) / len(present)
        min_share = config.get("domain_content_threshold", 1.0)
        if share < min_share:
            text = (
                "Categorical values requirement is not met. Expected match: "
                f"{100 * min_share}%. Observed: Only {100 * share}% of data is in the domain."
            )
            results.append(_make_violation(name, "categorical_values_check", text))
    return results


def _measure_type_share(present: list[str], kind: str) -> float:
    """Return the share of values that have the type ``kind``; an integer is also Fractional."""
    if kind == INTEGRAL:
        return sum(map(is_integer, present)) / len(present)
    if kind == FRACTIONAL:
        return float(np.mean(~np.isnan(parse_numbers(list(present)))))
    # A text column may contain some numbers. If it contains nothing but numbers, AWS's SDK's tests
    # expect a violation.
    if kind == STRING:
        return 0.0 if _measure_type_share(present, FRACTIONAL) == 1 else 1.0
    return 1.0


def _check_distribution(
    name: str, now: dict[str, Any], then: dict[str, Any], config: dict[str, Any]
) -> list[dict[str, str]]:
    """Return a violation if a column's distribution moved too far from that of the baseline.

    Args:
        name: name of the column.
        now: its statistics.
        then: its statistics in the baseline.
        config: monitoring configuration with the limits.

    Raises:
        DataError: the configuration names a method for text columns that is not implemented.
    """
    rules = config["distribution_constraints"]
    if rules.get("perform_comparison", "Enabled") != "Enabled":
        return []
    if "numerical_statistics" in now and "numerical_statistics" in then:
        limit = rules.get("comparison_threshold", 0.1)
        first, other = (side["numerical_statistics"].get("distribution") for side in (now, then))
        is_robust = rules.get("comparison_method") == "Robust"
        gap = (
            measure_sketch_distance(first["kll"], other["kll"], is_robust)
            if first and other
            else 0.0
        )
    elif now["inferred_type"] == then["inferred_type"] == STRING:
        if (method := rules.get("categorical_drift_method", LINFINITY)) != LINFINITY:
            raise DataError(
                f"{name}: categorical_drift_method {method!r}: {LINFINITY} is the only method "
                "computed here; AWS publishes no formula for any other"
            )
        limit = rules.get("categorical_comparison_threshold", 0.1)
        gap = _measure_category_distance(
            _get_buckets(now["string_statistics"]), _get_buckets(then["string_statistics"])
        )
    else:
        return []
    if gap <= limit:
        return []
    text = f"Baseline drift distance: {gap} exceeds threshold: {limit}"
    return [_make_violation(name, "baseline_drift_check", text)]


def _measure_category_distance(now: list[dict[str, Any]], then: list[dict[str, Any]]) -> float:
    """Return the LInfinity distance of two text columns: the largest difference, over all values,
    between a value's shares in the two. Return 0 if one has no buckets.
    """
    if not now or not then:
        return 0.0
    shares = []
    for buckets in (now, then):
        total = sum(bucket["count"] for bucket in buckets)
        shares.append({bucket["value"]: bucket["count"] / total for bucket in buckets})
    values = shares[0].keys() | shares[1].keys()
    return max(abs(shares[0].get(value, 0) - shares[1].get(value, 0)) for value in values)


# Compute statistics.json: the type, number of values, moments and distribution of each column.

FRACTIONAL, INTEGRAL, STRING, UNKNOWN = "Fractional", "Integral", "String", "Unknown"
CATEGORIES = 100
"""Largest number of distinct values of a text column for which the distribution is written."""


def describe_data(table: Table) -> dict[str, Any]:
    """Return the content of statistics.json for a data set, in Model Monitor's schema."""
    return {
        "version": 0.0,
        "dataset": {"item_count": table.rows},
        "features": [
            _compute_feature_statistics(name, cells) for name, cells in table.columns.items()
        ],
    }


def iter_undescribed_columns(statistics: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Iterate over (name, number of distinct values) of text columns that have too many for a
    distribution.
    """
    for feature in statistics["features"]:
        count = feature.get("string_statistics", {}).get("distinct_count", 0)
        if count > CATEGORIES:
            yield feature["name"], count


def infer_type(cells: Cells) -> str:
    """Return the type of a column: Integral, Fractional or String; Unknown if it has no value."""
    present = [cell for cell in cells if cell is not None]
    if not present:
        return UNKNOWN
    if all(is_integer(cell) for cell in present):
        return INTEGRAL
    return STRING if np.isnan(parse_numbers(list(present))).any() else FRACTIONAL


def _compute_feature_statistics(name: str, cells: Cells) -> dict[str, Any]:
    """Return the statistics of one column."""
    kind = infer_type(cells)
    present = [cell for cell in cells if cell is not None]
    common = {"num_present": len(present), "num_missing": len(cells) - len(present)}
    feature: dict[str, Any] = {"name": name, "inferred_type": kind}
    if kind in (INTEGRAL, FRACTIONAL):
        feature["numerical_statistics"] = {
            "common": common,
            **_compute_moments(parse_numbers(list(present))),
        }
    else:
        feature["string_statistics"] = {"common": common, **_count_categories(present)}
    return feature


def _compute_moments(values: np.ndarray) -> dict[str, Any]:
    """Return the moments and the distribution of the finite values; empty if there are none.

    ``std_dev`` is the population's standard deviation.
    """
    finite = values[np.isfinite(values)]
    return {
        "mean": float(finite.mean()),
        "sum": float(finite.sum()),
        "std_dev": float(finite.std()),
        "min": float(finite.min()),
        "max": float(finite.max()),
        "distribution": {"kll": build_kll_distribution(finite)},
    } if finite.size else {}  # fmt: skip


def _count_categories(present: list[str]) -> dict[str, Any]:
    """Return the number of distinct values of a text column, and their counts if they are few."""
    counts = Counter(present)
    result: dict[str, Any] = {"distinct_count": len(counts)}
    if counts and len(counts) <= CATEGORIES:
        buckets = [{"value": value, "count": count} for value, count in sorted(counts.items())]
        result["distribution"] = {"categorical": {"buckets": buckets}}
    return result


# KLL sketches of numeric columns: Karnin, Lang, Liberty: "Optimal quantile approximation in
# streams" (2016). An item of a level has twice the weight of an item of the level below. Here a
# level is halved by taking every second of its sorted items, beginning alternately with the first
# and the second, and not at random as in the paper, so that equal data give an equal sketch.


K = 2048
"""Largest number of items of a level that is not halved, as in AWS's files."""
C = 0.64
BUCKETS = 10


def build_kll_distribution(values: np.ndarray) -> dict[str, Any]:
    """Return ``distribution.kll`` of statistics.json for an array of at least one finite number."""
    edges = np.linspace(values.min(), values.max(), BUCKETS + 1)
    if edges[0] < edges[-1]:
        counts = np.histogram(values, edges)[0]
    else:
        # All values are equal, so the buckets have no width: all values are counted in the last.
        counts = np.zeros(BUCKETS, int)
        counts[-1] = len(values)
    return {
        "buckets": [
            {"lower_bound": float(low), "upper_bound": float(high), "count": float(count)}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ],
        "sketch": {"parameters": {"c": C, "k": float(K)}, "data": _build_sketch_levels(values)},
    }


def _build_sketch_levels(values: np.ndarray) -> list[list[float]]:
    """Return the levels of the sketch of ``values``, from weight 1 upwards."""
    levels: list[list[float]] = []
    level, turn = np.sort(values), 0
    while len(level) > K:
        odd = len(level) % 2
        levels.append(level[len(level) - odd :].tolist())
        level, turn = level[: len(level) - odd][turn::2], 1 - turn
    return [*levels, level.tolist()]


def unpack_sketch(kll: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted values of a sketch and their weights.

    The weights add up to the number of values from which the sketch was made.
    """
    levels = kll["sketch"]["data"]
    values = np.concatenate([np.array(level, float) for level in levels])
    weights = np.concatenate([np.full(len(level), 2.0**i) for i, level in enumerate(levels)])
    order = np.argsort(values, kind="stable")
    return values[order], weights[order]


def measure_sketch_distance(first: dict[str, Any], other: dict[str, Any], robust: bool) -> float:
    """Return the largest difference of two sketches' cumulative distributions, in [0, 1].

    If ``robust``, subtract what chance alone explains: the critical value of the two-sample
    Kolmogorov-Smirnov test at 5 %, 1.358 √((n + m) / n m). The result is at least 0. AWS names that
    test and gives no formula.
    """
    (a, wa), (b, wb) = unpack_sketch(first), unpack_sketch(other)
    points = np.union1d(a, b)
    gap = float(
        np.abs(
            _compute_cumulative_share(a, wa, points) - _compute_cumulative_share(b, wb, points)
        ).max()
    )
    n, m = wa.sum(), wb.sum()
    return max(0.0, gap - 1.358 * float(np.sqrt((n + m) / (n * m)))) if robust else gap


def _compute_cumulative_share(
    values: np.ndarray, weights: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Return the share of the weight at or below each of ``points``."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    return sums[np.searchsorted(values, points, side="right")] / sums[-1]
