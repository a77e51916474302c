"""What is compared of two sources: columns that are features, numbers that answers have."""

from collections.abc import Mapping
from typing import Any

import pytest

from pipelines.endpoint.answer_quality import NO_VARIANT, RecordedRequest, Source
from pipelines.endpoint.period import Period, compare_sources
from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError

SETS = ["deploy.endpoint=live", "deploy.capture_share=1", "monitor.days=7"]
ANSWER = {"outputs": {"price": 0.5}, "label": "a", "sure": True}


def source(record: Mapping[str, Any], answer: Any = None, variant: str = NO_VARIANT) -> Source:
    found = Source()
    for number in range(100):
        filled = {name: f"{value}{number % 7}" for name, value in record.items()}
        found.add(RecordedRequest(filled, answer, variant))
    return found


def looked(asked: Source, baseline: Source, *sets: str) -> Period:
    recipe: Recipe = load(CHECKOUT / "examples/trainer.yaml", [*SETS, *sets])
    assert recipe.monitor is not None
    return compare_sources(recipe, recipe.monitor, asked, baseline)


def test_labels_and_numbers_of_raw_records_are_no_features():
    raw = source({"a": "x", "order_id": "7", "label": "l"})
    found = looked(source({"a": "x"}, variant="version-1"), raw)
    assert [*found.before.columns] == ["a"] and found.drifted_features("values", "missing") == []
    assert "order_id, label: not compared, no request has them" in "; ".join(found.notes)
    named = looked(source({"a": "x"}, variant="version-1"), raw, "monitor.features=[label]")
    assert named.drifted_features("missing") == ["label"]


def test_a_column_that_requests_had_before_is_a_feature():
    earlier = source({"a": "x", "b": "y"}, variant="version-1")
    found = looked(source({"a": "x"}, variant="version-1"), earlier)
    assert found.drifted_features("missing") == ["b"]
    scores = source({"a": "x", "b": "y"}, answer=ANSWER)
    assert looked(source({"a": "x"}, variant="version-1"), scores).drifted_features("missing") == [
        "b"
    ]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("outptus.price", "nearest valid name: outputs.price"),
        ("label", "valid names: outputs.price"),
        ("sure", "valid names: outputs.price"),
    ],
)
def test_a_prediction_that_no_answer_has_is_refused(path: str, near: str):
    asked = source({"a": "x"}, ANSWER, "version-1")
    with pytest.raises(RecipeError, match=f"prediction: none of 100 .* number '{path}'; {near}"):
        looked(asked, asked, f"monitor.prediction={path}")
    found = looked(asked, asked, "monitor.prediction=outputs.price")
    assert "answer.outputs.price" in found.before.columns
    scores = source({"a": "x"}, {"price": 1}, "version-1")
    with pytest.raises(RecipeError, match=r"prediction of the baseline: none of 100"):
        looked(asked, scores, "monitor.prediction=outputs.price")
