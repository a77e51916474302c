"""The semantic diff: everything is seen, at its place, and nothing else."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.plan.pictures import Change, Studio
from trainyard.plan.definition_diff import (
    diff_definitions,
    flatten_fields,
    format_path,
    format_reference,
    index_steps,
    list_fields,
    render_value,
)
from trainyard.plan.deployed_pipeline import State

pytestmark = pytest.mark.long


def state(body: dict, **more) -> State:
    """A pipeline's state with that definition."""
    plain = {"role": "role", "description": "", "max_parallel_steps": 4, "tags": {}}
    return State(name="p", definition=json.dumps(body), **(plain | more))


def pipeline(*made: dict, **more) -> dict:
    return {"Version": "2020-12-01", "Parameters": [], **more, "Steps": list(made)}


def step(**arguments) -> dict:
    return {"Name": "A", "Type": "Processing", "Arguments": arguments}


def leaves(value, path: tuple = ()) -> Iterator[tuple]:
    """The path to every scalar in a JSON document."""
    if not isinstance(value, dict | list):
        yield path
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(item, (*path, key))


def owner(body: dict, path: tuple) -> str | None:
    """The innermost step around a leaf."""
    found, here = None, body
    for key in path:
        here = here[key]
        if isinstance(here, dict) and {"Name", "Type", "Arguments"} <= here.keys():
            found = here["Name"]
    return found


@pytest.mark.sweep
def test_a_change_of_any_value_is_seen_in_its_step(studio: Studio):
    """Each of the values of a whole definition in turn."""
    base = studio.base.state
    count = 0
    for path in leaves(base.document):
        body = copy.deepcopy(base.document)
        inside = body
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = f"{inside[path[-1]]} changed"
        diff = diff_definitions(base, replace(base, definition=json.dumps(body)))
        assert diff, path
        name = owner(base.document, path)
        is_name = path[-1] == "Name" and owner(base.document, path[:-1]) == inside["Name"][:-8]
        if name and not is_name:
            assert [s.name for s in diff.steps] == [name], path
            assert diff.steps[0].changes and not diff.parameters, path
        elif path[0] == "Parameters":
            assert diff.parameters and not diff.steps, path
        count += 1
    assert count > 250


def test_a_change_to_a_state_and_back_is_the_same_change(studio: Studio):
    change = Change(("train.loop.strategy=fsdp", "retry.max_attempts=2", "data.input=s3://abc/d"))
    one, other = studio.base.state, studio.compile_change(change).state
    there, back = diff_definitions(one, other), diff_definitions(other, one)
    swap = {"+": "-", "-": "+", "~": "~"}

    def every(found) -> list:
        return [*found.parameters, *(c for s in found.steps for c in s.changes)]

    turned = {(swap[c.sign], c.path, c.new, c.old) for c in every(back)}
    assert {(c.sign, c.path, c.old, c.new) for c in every(there)} == turned
    assert not diff_definitions(one, one)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({"Environment": {"A": "1"}}, {"Environment": {"A": "2"}}, "~ Environment.A 1 2"),
        (
            {"Inputs": [{"InputName": "a", "X": 1}, {"InputName": "b", "X": 2}]},
            {"Inputs": [{"InputName": "b", "X": 3}, {"InputName": "a", "X": 1}]},
            "~ Inputs[b] 2 3",
        ),
        (
            {"Tags": [{"Key": "a", "Value": "1"}]},
            {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]},
            "+ Tags[b] None 2",
        ),
        (
            {"ContainerArguments": ["--x", "1", "--y", "2"]},
            {"ContainerArguments": ["--x", "1", "--y", "3"]},
            "~ ContainerArguments --y 2 3",
        ),
        (
            {"ContainerArguments": ["run", "--on", "--t", "a", "1", "--t", "b", "2"]},
            {"ContainerArguments": ["run", "--on", "--t", "a", "1", "--t", "b", "3"]},
            "~ ContainerArguments --t b 2 3",
        ),
        (
            {"HyperParameters": {"config": '{"a": {"b": 1}, "c": 2}'}},
            {"HyperParameters": {"config": '{"c":2,"a":{"b":5}}'}},
            "~ HyperParameters.config.a.b 1 5",
        ),
        ({"N": {"Get": "Parameters.Count"}}, {"N": 3}, "~ N {Count} 3"),
        ({"N": 1}, {"N": "1"}, "~ N 1 '1'"),
        (
            {"Outputs": []},
            {"Outputs": [{"OutputName": "o", "S3Output": {"S3Uri": "s3://b", "M": 1}}]},
            "- Outputs [] None; + Outputs[o] None s3://b",
        ),
    ],
)
def test_fields_are_known_by_their_names(old: dict, new: dict, told: str):
    diff = diff_definitions(state(pipeline(step(**old))), state(pipeline(step(**new))))
    changes = sorted(diff.steps[0].changes, key=lambda c: c.sign != "-")
    assert "; ".join(f"{c.sign} {c.path} {c.old} {c.new}" for c in changes) == told


def test_what_is_around_the_steps_and_their_order(studio: Studio):
    base = studio.base.state
    changed = replace(base, role="arn:aws:iam::1:role/x", max_parallel_steps=8, tags={"a": "b"})
    paths = {f"{c.sign} {c.path}" for c in diff_definitions(base, changed).pipeline}
    changed_paths = {"~ RoleArn", "~ MaxParallelExecutionSteps", "- Tags[project]", "+ Tags[a]"}
    assert paths == changed_paths
    body = copy.deepcopy(base.document)
    body["Steps"].reverse()
    found = diff_definitions(base, replace(base, definition=json.dumps(body)))
    assert "order" in found.pipeline[0].note and not found.steps


def test_a_parameter_tells_where_it_lands():
    parameter = {"Name": "N", "Type": "Integer", "DefaultValue": 1}
    use = {"ClusterConfig": {"InstanceCount": {"Get": "Parameters.N"}}}
    one = pipeline(step(ProcessingResources=use), Parameters=[parameter])
    other = pipeline(step(ProcessingResources=use), Parameters=[parameter | {"DefaultValue": 2}])
    found = diff_definitions(state(one), state(other))
    assert (found.parameters[0].old, found.parameters[0].new) == ("1", "2")
    assert found.parameters[0].note == "in A InstanceCount"
    assert found.changed_steps == {"A"} and not found.steps


@pytest.mark.parametrize(
    ("get", "read"),
    [
        ("Parameters.MaxSteps", "{MaxSteps}"),
        ("Execution.PipelineExecutionId", "{execution id}"),
        ("Steps.S.ProcessingOutputConfig.Outputs['train'].S3Output.S3Uri", "{S.train}"),
        ("Steps.T.ModelArtifacts.S3ModelArtifacts", "{T.model}"),
        ("Steps.T.FinalMetricDataList['loss'].Value", "{T.FinalMetricDataList['loss'].Value}"),
        ("nonsense", "{nonsense}"),
    ],
)
def test_references_read_like_words(get: str, read: str):
    assert format_reference(get) == read
    assert render_value({"Std:Join": {"On": "/", "Values": ["a", {"Get": get}]}}) == f"a/{read}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), JSON, max_size=2))
def test_any_json_has_fields_and_equal_json_equal_ones(values: dict):
    assert flatten_fields(values) == flatten_fields(copy.deepcopy(values))
    for path, field in flatten_fields(values).items():
        assert isinstance(format_path(path), str) and isinstance(field.text, str)


def test_nested_steps_are_steps_of_their_own(studio: Studio):
    found = index_steps(studio.base.state.document)
    assert list(found) == ["Shard", "Train", "Evaluate", "Gate", "Verdict", "Register", "Rejected"]
    assert list_fields(found["Verdict"])["IfSteps"].text == "Register"
