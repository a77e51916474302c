"""What is known before a run, or told after it, is what the run itself evaluates to."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.sagemaker.pipelines.checked_definition import Definition, Step
from trainyard.emulator.sagemaker.pipelines.running_execution import ExecutionScope
from trainyard.language.definition_document import Document, iter_steps
from trainyard.language.evaluation import (
    Scope,
    Unknown,
    UnstartedScope,
    evaluate_value,
    iter_unknowns,
    join_values,
)
from trainyard.language.expressions import ExpressionError, format_join_value
from trainyard.permissions.statements import Values
from trainyard.plan.cache_prediction import STAND_IN_PREFIX, History, NextScope, PastScope, Run

ARN = "arn:aws:sagemaker:us-east-1:111122223333:pipeline/mine/execution/abc"
PARAMETERS = {"Bucket": "s3://b", "Steps": 7, "Rate": 0.5, "Debug": True, "Dot": "."}
FOLDER = {"Std:Join": {"On": "/", "Values": [{"Get": "Parameters.Bucket"}, "train"]}}
FRESH = {"Std:Join": {"On": "/", "Values": ["s3://b", {"Get": "Execution.PipelineExecutionId"}]}}
PLACES = {"same": FOLDER, "fresh": FRESH}
OUTPUTS = [{"OutputName": name, "S3Output": {"S3Uri": uri}} for name, uri in PLACES.items()]
SHARD = {"ProcessingOutputConfig": {"Outputs": OUTPUTS}, "Environment": {"A": "1"}}
DOCUMENT = {
    "Parameters": [{"Name": name, "DefaultValue": value} for name, value in PARAMETERS.items()],
    "Steps": [{"Name": "Shard", "Type": "Processing", "Arguments": SHARD}],
}
JOB = {"ProcessingJobArn": "arn:x", "ProcessingJobName": "pipelines-abc-Shard"}


def gets(*texts: str) -> st.SearchStrategy:
    return st.sampled_from([{"Get": text} for text in texts])


output = "Steps.Shard.ProcessingOutputConfig.Outputs['{}'].S3Output.S3Uri"
parameters = gets(*(f"Parameters.{name}" for name in PARAMETERS))
constants = st.sampled_from(["", "a", "x/y", 3, 1.5, False]) | parameters
scalars = constants | gets(
    *("Execution.PipelineName", "Execution.PipelineExecutionId", "Execution.PipelineExecutionArn"),
    *(output.format("same"), output.format("fresh"), "Steps.Shard.Environment.A"),
    *("Steps.Shard.ProcessingJobArn", "Steps.Shard.ProcessingJobName"),
)


def values(leaves: st.SearchStrategy) -> st.SearchStrategy:
    """Expressions and containers of them, nested."""
    texts = st.recursive(
        leaves,
        lambda inner: st.builds(
            lambda on, parts: {"Std:Join": {"On": on, "Values": parts}},
            st.sampled_from(["", "/", "-"]),
            st.lists(inner, max_size=4),
        ),
        max_leaves=8,
    )
    return st.recursive(
        texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner),
        max_leaves=6,
    )


def emulator() -> ExecutionScope:
    """The scope that a step of a real execution has."""
    pipeline = {"PipelineArn": ARN.partition("/execution/")[0], "PipelineExecutionArn": ARN}
    record = {
        "parameters": PARAMETERS,
        "answer": {"CreationTime": 0.0, **pipeline},
        "pipeline": "mine",
        "steps": {"Shard": {"Metadata": {}}},
    }
    describe = lambda _: evaluate_value(SHARD, scope) | JOB  # noqa: E731
    shard = Step("Shard", "Processing", SHARD, {"Name": "Shard", "Type": "Processing"})
    scope = ExecutionScope(record, Definition({}, {"Shard": shard}), describe, None, {})
    return scope


def plans() -> tuple[Scope, Scope]:
    """The scopes of the execution that was, and of the one that would come next."""
    history, at = History(None, None), datetime(2026, 1, 1, tzinfo=UTC)
    run = Run(arn=ARN, start_time=at, document=DOCUMENT, parameters=PARAMETERS, steps={})
    return PastScope(run, history), NextScope(DOCUMENT, PARAMETERS, "mine", history, {})


RUN, (PAST, NEXT), POLICY = emulator(), plans(), Values("mine", DOCUMENT)
CHECKS = Document(
    document=DOCUMENT,
    parameters={entry["Name"]: entry for entry in DOCUMENT["Parameters"]},
    steps=tuple(iter_steps(DOCUMENT["Steps"])),
)


def agree(known: Any, real: Any) -> bool:
    """Whether a value that is known in part can be the real one."""
    if isinstance(known, Unknown):
        parts = known.parts or (known,)
        wanted = "".join(re.escape(p) if isinstance(p, str) else ".*" for p in parts)
        return bool(re.fullmatch(wanted, format_join_value(real), re.DOTALL))
    if isinstance(known, str) and STAND_IN_PREFIX in known:
        return isinstance(real, str)
    if isinstance(known, list):
        return len(known) == len(real) and all(map(agree, known, real))
    if isinstance(known, dict):
        return known.keys() == real.keys() and all(agree(known[key], real[key]) for key in known)
    return (type(known), known) == (type(real), real)


@given(values(scalars))
def test_no_tool_says_what_the_run_does_not(value: Any) -> None:
    real = evaluate_value(value, RUN)
    assert not list(iter_unknowns(real))
    assert not list(iter_unknowns(evaluate_value(value, PAST)))
    for known in (
        CHECKS.resolve_value(value),
        *(evaluate_value(value, s) for s in (PAST, NEXT, POLICY)),
    ):
        assert agree(known, real)


@given(values(constants))
def test_with_parameters_alone_every_tool_knows_what_the_run_does(value: Any) -> None:
    real = evaluate_value(value, RUN)
    known = [
        CHECKS.resolve_value(value),
        *(evaluate_value(value, scope) for scope in (PAST, NEXT, POLICY)),
    ]
    assert known == [real] * 4
    if not isinstance(real, list | dict):
        assert POLICY.resolve_text(value, "x") == format_join_value(real)


def test_an_unknown_value_says_why_and_keeps_what_is_known() -> None:
    parts = ["s3://b", {"Get": "Execution.PipelineExecutionId"}, {"Get": "Steps.A.ModelName"}]
    found = evaluate_value(
        {"x": [{"Std:Join": {"On": "/", "Values": parts}}], "y": 1}, UnstartedScope({})
    )
    [unknown] = iter_unknowns(found)
    assert found == {"x": [unknown], "y": 1}
    assert unknown.reason == "Execution.PipelineExecutionId is known when it runs"
    assert unknown.reasons == [unknown.reason, "Steps.A.ModelName is known when it runs"]
    assert unknown.fill_unknowns("*") == "s3://b/*/*"
    assert join_values([unknown, "c"], "-").fill_unknowns("*") == "s3://b/*/*-c"
    assert Unknown("why").fill_unknowns("*") == "*"


def test_a_json_file_is_unknown_where_its_place_is() -> None:
    uri = {"Std:Join": {"On": "/", "Values": ["s3://b", {"Get": "Parameters.x"}]}}
    found = evaluate_value(
        {"Std:JsonGet": {"S3Uri": uri, "Path": "a"}}, UnstartedScope({"x": None})
    )
    assert found.reason == "Parameters.x is known when it runs"


@pytest.mark.parametrize(
    "value",
    [
        {"Get": "Parameters.Absent"},
        {"Get": "Step.A.B"},
        {"Std:Join": {"Values": [None]}},
        {"Std:Join": "a"},
        {"Std:JsonGet": 3},
        {"Std:JsonGet": {"PropertyFile": "a", "Path": "b"}},
        {"Std:JsonGet": {"PropertyFile": {"Get": "Steps.A.B"}, "Path": "b"}},
    ],
)
def test_what_fails_in_a_run_is_an_error_or_leniently_unknown(value: dict) -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate_value({"x": value}, NEXT)
    unknown = Unknown(str(error.value))
    assert evaluate_value({"x": value, "y": 1}, NEXT, lenient=True) == {"x": unknown, "y": 1}
