"""Our analyser in Model Monitor's formats: statistics, constraints, drift, a model's metrics."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sklearn import metrics as sk

from trainyard.quality import constraints, job, model_quality
from trainyard.quality.model_quality import DataError, Table, read_tables

pytestmark = pytest.mark.long

COLUMNS = "age,height,city\n"
BASE = COLUMNS + "".join(f"{20 + i % 40},{1.5 + i / 1000},{'AB'[i % 2]}\n" for i in range(200))


def table(folder: Path, text: str, form: dict[str, Any]) -> Table:
    (folder / "data").write_text(text)
    return read_tables(folder, form)


def analyse_text(folder: Path, text: str, baseline: Path | None = None, **more: str) -> Path:
    """Runs the job on ``text``; where its files are."""
    (folder / "in").mkdir(parents=True)
    (folder / "in/data.csv").write_text(text)
    environment = {
        "dataset_format": json.dumps({"csv": {"header": True}}),
        "dataset_source": str(folder / "in"),
        "output_path": str(folder / "out"),
        **more,
    }
    if baseline:
        names = ("constraints", "statistics")
        environment |= {f"baseline_{name}": str(baseline / f"{name}.json") for name in names}
    job.run(environment)
    return folder / "out"


def read_violations(folder: Path, text: str, **changes: Any) -> list[tuple[str, str]]:
    """(feature, check) of the violations of ``text`` against BASE."""
    base = analyse_text(folder / "base", BASE)
    if changes:
        path = base / "constraints.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    report = analyse_text(folder / "now", text, base) / "constraint_violations.json"
    return [
        (v["feature_name"], v["constraint_check_type"])
        for v in json.loads(report.read_text())["violations"]
    ]


def test_a_baseline_has_model_monitors_form(tmp_path: Path) -> None:
    out = analyse_text(tmp_path, BASE)
    document = json.loads((out / "statistics.json").read_text())
    assert document["dataset"] == {"item_count": 200}
    age, height, city = document["features"]
    kinds = [feature["inferred_type"] for feature in (age, height, city)]
    assert kinds == ["Integral", "Fractional", "String"]
    numbers = age["numerical_statistics"]
    assert numbers["common"] == {"num_present": 200, "num_missing": 0}
    assert numbers["mean"] == pytest.approx(39.5)
    buckets = numbers["distribution"]["kll"]["buckets"]
    assert (len(buckets), sum(bucket["count"] for bucket in buckets)) == (10, 200)
    assert city["string_statistics"]["distinct_count"] == 2
    suggested = json.loads((out / "constraints.json").read_text())
    assert suggested["features"][0] == {
        "name": "age",
        "inferred_type": "Integral",
        "completeness": 1.0,
        "num_constraints": {"is_non_negative": True},
    }
    assert suggested["features"][2]["string_constraints"] == {"domains": ["A", "B"]}
    assert not (out / "constraint_violations.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        ("20,1.5,A", "20.5,1.5,A", [("age", "data_type_check")]),
        ("20,1.5,A", "20,tall,A", [("height", "data_type_check")]),
        ("20,1.5,A", ",1.5,A", [("age", "completeness_check")]),
        ("20,1.5,A", "20,1.5,C", [("city", "categorical_values_check")]),
    ],
)
def test_one_bad_cell_is_named(tmp_path, old: str, new: str, expected: list) -> None:
    assert read_violations(tmp_path, BASE.replace(old, new, 1)) == expected


def test_a_column_of_text_that_holds_numbers_only_is_another_type(tmp_path: Path) -> None:
    numbers = BASE.replace(",A\n", ",1\n").replace(",B\n", ",2\n")
    assert ("city", "data_type_check") in read_violations(tmp_path, numbers)


def test_drift_of_numbers_and_words_and_columns_that_come_and_go(tmp_path: Path) -> None:
    older = BASE.replace(",B\n", ",A\n").replace("\n2", "\n4").replace("city", "town")
    columns = [("Missing columns", "missing_column_check"), ("Extra columns", "extra_column_check")]
    assert read_violations(tmp_path / "names", older) == [*columns, ("age", "baseline_drift_check")]
    words = read_violations(tmp_path / "words", BASE.replace(",B\n", ",A\n"))
    assert words == [("city", "baseline_drift_check")]
    off = {"distribution_constraints": {"perform_comparison": "Disabled"}}
    quiet = read_violations(tmp_path / "off", BASE.replace(",B\n", ",A\n"), monitoring_config=off)
    assert quiet == []
    rules = {"distribution_constraints": {"categorical_drift_method": "ChiSquared"}}
    with pytest.raises(DataError, match="city: categorical_drift_method 'ChiSquared': LInfinity"):
        read_violations(tmp_path / "other", BASE, monitoring_config=rules)


def test_words_too_many_to_be_compared_are_named(tmp_path: Path, capsys) -> None:
    analyse_text(tmp_path, "user\n" + "".join(f"u{n}\n" for n in range(101)))
    assert "user: 101 distinct values, more than 100: their" in capsys.readouterr().out


def test_json_lines_and_csv_without_a_header(tmp_path: Path) -> None:
    lines = '{"a": 1, "b": {"c": "x"}}\n\n{"a": null, "b": {"c": "y"}, "d": true}\n'
    read_ = table(tmp_path, lines, {"json": {"lines": True}})
    assert read_.columns == {"a": ["1", None], "b.c": ["x", "y"], "d": [None, "true"]}
    parted = '{"a": "x\u2028y"}\r\n{"a": "z"}\n'  # a line ends at a line feed alone
    assert table(tmp_path, parted, {"json": {"lines": True}}).columns == {"a": ["x\u2028y", "z"]}
    assert table(tmp_path, '[{"a": 1}, {"a": 2}]', {"json": {"lines": False}}).rows == 2
    bare = table(tmp_path, "1,x\n,y\n", {"csv": {"header": False}})
    assert bare.columns == {"_c0": ["1", None], "_c1": ["x", "y"]}
    assert bare.find_column("1") == bare.find_column("_c1")


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        ("a,b\n1\n", {"csv": {}}, "data, row 2: 1 columns; 2 are expected"),
        ("{}\nx\n", {"json": {}}, "data, line 2 is not JSON"),
        ("[" * 100_000, {"json": {}}, "data, line 1 is not JSON"),
        ("[1]", {"json": {}}, "data, line 1: a JSON object is expected"),
        ("a\n", {"csv": {}}, "contains no rows"),
        ("a\n", {"parquet": {}}, "only csv and json are supported"),
        (f"a\n{'0' * 200_000}\n", {"csv": {}}, "data: field larger than field limit"),
    ],
)
def test_data_at_fault_are_named(tmp_path, text: str, form: dict, expected: str) -> None:
    usual = csv.field_size_limit(128 << 10)  # the shard step's reader sets another, if it is loaded
    try:
        with pytest.raises(DataError, match=expected):
            table(tmp_path, text, form)
    finally:
        csv.field_size_limit(usual)


# distributions


@given(st.integers(1, 9000), st.integers(0, 5))
def test_a_sketch_keeps_the_number_of_data_and_their_quantiles(size: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=size)
    kept, weights = constraints.unpack_sketch(constraints.build_kll_distribution(values))
    assert weights.sum() == size
    assert all(
        len(level) <= constraints.K
        for level in constraints.build_kll_distribution(values)["sketch"]["data"]
    )
    share = np.cumsum(weights) / size
    exact = np.searchsorted(np.sort(values), kept, side="right") / size
    assert np.abs(share - exact).max() <= 0.002


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40), st.lists(st.integers(0, 9), min_size=1)
)
def test_the_distance_is_kolmogorov_and_smirnovs(one: list[int], other: list[int]) -> None:
    a, b = (constraints.build_kll_distribution(np.array(values, float)) for values in (one, other))
    assert constraints.measure_sketch_distance(a, b, robust=False) == pytest.approx(
        ks_2samp(one, other).statistic
    )
    assert constraints.measure_sketch_distance(
        a, b, robust=True
    ) <= constraints.measure_sketch_distance(a, b, robust=False)


def test_equal_populations_seldom_drift_and_another_does() -> None:
    random = np.random.default_rng(1)
    one, same = (constraints.build_kll_distribution(random.normal(size=60)) for _ in range(2))
    assert constraints.measure_sketch_distance(one, same, robust=True) < 0.1
    assert (
        constraints.measure_sketch_distance(
            one, constraints.build_kll_distribution(random.normal(3, size=60)), robust=True
        )
        > 0.5
    )


# a model


def two_columns(truth: Any, said: Any, **more: Any) -> Table:
    columns = {"truth": truth, "said": said, **more}
    cells = {name: [str(value) for value in values] for name, values in columns.items()}
    return Table(cells, len(truth))


ATTRIBUTES = {"ground_truth_attribute": "truth", "inference_attribute": "said"}


def values(document: dict[str, Any], key: str) -> dict[str, float]:
    return {n: e["value"] for n, e in document[key].items() if n != "confusion_matrix"}


def test_regression_and_its_deviation_from_200_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=250)
    said = truth + random.normal(0, 0.1, 250)
    document = model_quality.describe_predictions(
        two_columns(truth, said), "Regression", ATTRIBUTES
    )
    expected = {
        "mae": sk.mean_absolute_error(truth, said),
        "mse": sk.mean_squared_error(truth, said),
        "rmse": sk.root_mean_squared_error(truth, said),
        "r2": sk.r2_score(truth, said),
    }
    assert values(document, "regression_metrics") == pytest.approx(expected)
    assert 0 < document["regression_metrics"]["mae"]["standard_deviation"] < 0.01
    few = model_quality.describe_predictions(
        two_columns(truth[:9], said[:9]), "Regression", ATTRIBUTES
    )
    assert few["regression_metrics"]["mae"]["standard_deviation"] == "NaN"
    limits = model_quality.suggest_metric_constraints(document)
    assert limits["regression_constraints"]["r2"]["comparison_operator"] == "LessThanThreshold"
    assert model_quality.find_violations(document, limits) == []
    worse = model_quality.describe_predictions(
        two_columns(truth, said + 1), "Regression", ATTRIBUTES
    )
    broken = model_quality.find_violations(worse, limits)
    assert {entry["metric_name"] for entry in broken} == {"mae", "mse", "rmse", "r2"}
    assert "was GreaterThanThreshold '0.0" in broken[0]["description"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10)), min_size=2, max_size=40))
def test_two_classes_from_probabilities(pairs: list[tuple[bool, int]]) -> None:
    truth = [int(one) for one, _ in pairs]
    chances = [score / 10 for _, score in pairs]
    given_ = {"ground_truth_attribute": "truth", "probability_attribute": "said"}
    document = model_quality.describe_predictions(
        two_columns(truth, chances), "BinaryClassification", given_
    )
    found_ = values(document, "binary_classification_metrics")
    said = [int(chance > 0.5) for chance in chances]
    for name in ("recall", "precision", "f1"):
        score = getattr(sk, f"{name}_score")
        assert found_[name] == pytest.approx(score(truth, said, zero_division=0)), name
    if 0 < sum(truth) < len(truth):
        assert found_["auc"] == pytest.approx(sk.roc_auc_score(truth, chances))


def test_several_classes_and_columns_that_are_not_there() -> None:
    truth, said = ["a", "b", "c", "a"], ["a", "b", "a", "a"]
    columns = two_columns(truth, said)
    document = model_quality.describe_predictions(columns, "MulticlassClassification", ATTRIBUTES)
    expected = sk.f1_score(truth, said, average="weighted")
    found_ = values(document, "multiclass_classification_metrics")
    assert found_["weighted_f1"] == pytest.approx(expected)
    matrix = document["multiclass_classification_metrics"]["confusion_matrix"]
    assert matrix["c"] == {"a": 1, "b": 0, "c": 0}
    with pytest.raises(DataError, match="no column 'label'; the data set has truth, said"):
        model_quality.describe_predictions(
            columns, "Regression", {"ground_truth_attribute": "label"}
        )
    with pytest.raises(DataError, match="is 'a': a number is expected"):
        model_quality.describe_predictions(columns, "Regression", ATTRIBUTES)
