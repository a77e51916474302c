"""Get, Std:Join and Std:JsonGet against a plain Python model."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.language.evaluation import evaluate_value, extract_json_value
from trainyard.language.expressions import (
    ExpressionError,
    Reference,
    iter_references,
    look_up_path,
    split_path,
)

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
scalars = st.one_of(
    st.text(max_size=8),
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)


class World:
    """A scope over plain dictionaries."""

    def __init__(self, parameters=None, steps=None, files=None) -> None:
        self.parameters, self.steps, self.files = parameters or {}, steps or {}, files or {}

    def parameter(self, name: str) -> Any:
        return self.parameters[name]

    def variable(self, name: str) -> str:
        return f"<{name}>"

    def property(self, step: str, path: str) -> Any:
        return look_up_path(self.steps[step], path, step)

    def property_file(self, step: str, name: str, path: str) -> Any:
        return extract_json_value(self.files[step, name], path, name)

    def s3_file(self, uri: str, path: str) -> Any:
        return extract_json_value(self.files[uri], path, uri)


def paths_of(document: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every path in a document, in the form a.b[0], with its value."""
    found = [(path, document)] if path else []
    if isinstance(document, dict):
        for key, value in document.items():
            found += paths_of(value, f"{path}.{key}" if path else key)
    if isinstance(document, list):
        for index, value in enumerate(document):
            found += paths_of(value, f"{path}[{index}]")
    return found


@given(st.dictionaries(names, documents, max_size=4))
def test_json_get_finds_every_value_of_a_document(document: dict) -> None:
    world = World(files={("Eval", "metrics"): json.dumps(document).encode()})
    for path, value in paths_of(document):
        body = {"PropertyFile": {"Get": "Steps.Eval.PropertyFiles.metrics"}, "Path": path}
        assert evaluate_value({"Std:JsonGet": body}, world) == value


@given(
    st.text(max_size=3), st.lists(st.text(max_size=5), max_size=5), st.dictionaries(names, scalars)
)
def test_join_is_join(on: str, literals: list[str], parameters: dict) -> None:
    gets = [{"Get": f"Parameters.{name}"} for name in parameters]
    joined = evaluate_value(
        {"Std:Join": {"On": on, "Values": [*literals, *gets]}}, World(parameters)
    )
    texts = [
        given if isinstance(given, str) else json.dumps(given) for given in parameters.values()
    ]
    assert joined == on.join([*literals, *texts])


@given(documents)
def test_what_holds_no_expression_stays_as_it_is(document: Any) -> None:
    assert evaluate_value(document, World()) == document
    assert list(iter_references(document)) == []


@given(st.lists(names, unique=True, min_size=1, max_size=4), documents)
def test_every_reference_is_found_however_deep(parameters: list[str], filler: Any) -> None:
    value: Any = filler
    for name in parameters:
        get = {"Get": f"Parameters.{name}"}
        value = {"x": [{"Std:Join": {"On": "", "Values": ["a", get]}}, {"y": value}]}
    assert {reference.name for reference in iter_references(value)} == set(parameters)


def test_properties_by_path_index_and_name() -> None:
    outputs = [{"OutputName": "train", "S3Output": {"S3Uri": "s3://b/t"}}]
    metrics = [{"MetricName": "val:loss", "Value": 0.5}]
    shard = {"ProcessingOutputConfig": {"Outputs": outputs}}
    world = World(steps={"Shard": shard, "Train": {"FinalMetricDataList": metrics}})

    def get(path: str) -> Any:
        return evaluate_value({"Get": f"Steps.{path}"}, world)

    assert get("Shard.ProcessingOutputConfig.Outputs['train'].S3Output.S3Uri") == "s3://b/t"
    assert get("Shard.ProcessingOutputConfig.Outputs[0].S3Output.S3Uri") == "s3://b/t"
    assert get("Train.FinalMetricDataList['val:loss'].Value") == 0.5
    with pytest.raises(ExpressionError, match="no 'nope'; its members are"):
        get("Shard.nope")
    with pytest.raises(ExpressionError, match="has no 'test'"):
        get("Shard.ProcessingOutputConfig.Outputs['test']")
    with pytest.raises(ExpressionError, match=r"where: 'a\[3\]' has no 3"):
        look_up_path({"a": [1]}, "a[3]", "where")


def test_reference_kinds() -> None:
    texts = ("Steps.A.B.C", "Steps.A.PropertyFiles.f", "Execution.PipelineName")
    assert list(iter_references([{"Get": text} for text in texts])) == [
        Reference("Steps", "A", "B.C"),
        Reference("PropertyFiles", "A", "f"),
        Reference("Execution", "PipelineName"),
    ]


def test_json_get_from_s3_and_values_that_are_not_json() -> None:
    world = World(files={"s3://b/x.json": b'{"a": [1, 2]}', "s3://b/nan.json": b'{"a": NaN}'})
    uri = {"Std:Join": {"On": "/", "Values": ["s3://b", "x.json"]}}
    assert evaluate_value({"Std:JsonGet": {"S3Uri": uri, "Path": "a[1]"}}, world) == 2
    with pytest.raises(ExpressionError, match="not valid JSON: NaN"):
        evaluate_value({"Std:JsonGet": {"S3Uri": "s3://b/nan.json", "Path": "a"}}, world)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"Get": "Parameter.x"}, "expected Parameters.x"),
        ({"Get": "Steps.A"}, "expected Parameters.x"),
        ({"Get": "Execution.Nope"}, "expected one of"),
        ({"Get": 3}, "expected Parameters.x"),
        ({"Std:Join": {"On": "", "Values": "abc"}}, "Values"),
        ({"Std:JsonGet": {"Path": "a"}}, "PropertyFile or S3Uri"),
        ({"Std:JsonGet": {"S3Uri": "s3://b/k", "Path": "a..b"}}, "expected the form"),
    ],
)
def test_malformed_expressions_are_refused(value: dict, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        list(iter_references(value))


@pytest.mark.parametrize("path", ["", ".a", "a[", "a[-1]", "a[*]", "$.a", "a b"])
def test_paths_outside_the_subset_are_refused(path: str) -> None:
    with pytest.raises(ExpressionError):
        split_path(path)
