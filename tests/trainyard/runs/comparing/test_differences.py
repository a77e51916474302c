"""What is called different differs, what is called the same is the same, in any order of runs."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainyard.language.steps import steps_of
from trainyard.plan.fields import Field, flat
from trainyard.runs.comparing.arguments import given as given_to
from trainyard.runs.comparing.arguments import parameter_fields, parameters
from trainyard.runs.comparing.differences import Value, rows
from trainyard.runs.comparing.folding import key

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
LEAVES = st.one_of(TEXTS, st.integers(-9, 9), st.booleans(), st.floats(-1, 1))
NAMES = st.text("abc", min_size=1, max_size=2)
ARGUMENTS = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)
        ),
        max_leaves=6,
    ),
    max_size=4,
)


def column(fields: dict[str, Field], own: dict[str, str] | None = None) -> dict[str, Value]:
    return {path: Value(one.text, key(one.raw, own or {})) for path, one in fields.items()}


@given(st.lists(ARGUMENTS, min_size=1, max_size=4))
def test_runs_with_the_same_arguments_differ_in_nothing(each: list[dict[str, Any]]):
    again = json.loads(json.dumps(each[0]))
    assert rows([column(flat(each[0])), column(flat(again))]) == []


@given(ARGUMENTS, NAMES, LEAVES)
def test_a_value_that_was_changed_has_a_row_and_nothing_else_has(arguments, name: str, value):
    leaves = {**arguments, name: "as it was"}
    found = rows([column(flat(leaves)), column(flat({**leaves, name: value}))])
    same = key(value, {}) == "as it was"
    assert [row.path for row in found] == ([] if same else [name])


@given(st.lists(ARGUMENTS, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_runs_orders_columns_and_nothing_else(each: list[dict[str, Any]], random):
    places = list(range(len(each)))
    random.shuffle(places)
    columns = [column(flat(arguments)) for arguments in each]
    found = rows(columns)
    shuffled = rows([columns[place] for place in places])
    assert [row.path for row in shuffled] == [row.path for row in found]
    for mine, yours in zip(found, shuffled, strict=True):
        assert yours.values == tuple(mine.values[place] for place in places)
    everything = rows(columns, everything=True)
    assert [row for row in everything if row.differs] == found


def test_what_nobody_can_tell_is_shown_though_it_may_be_the_same():
    doubt = Value("cannot be known", "x", known=False)
    assert rows([{"train": doubt}, {"train": doubt}])


def test_names_of_the_run_say_nothing():
    mine = {"abc123def456": "{execution id}", "pipelines-abc123def456-Train-x1": "{job name}"}
    yours = {"zzz999yyy888": "{execution id}", "pipelines-zzz999yyy888-Train-q7": "{job name}"}
    for one, other in (
        ("s3://b/abc123def456/ckpt", "s3://b/zzz999yyy888/ckpt"),
        ("job pipelines-abc123def456-Train-x1 died", "job pipelines-zzz999yyy888-Train-q7 died"),
        ("s3://b/p-2026-11-22-21-43-03-123/x", "s3://b/p-2025-01-02-03-04-05-006/x"),
    ):
        assert key(one, mine) == key(other, yours)
    assert key("2026-11-22", mine) != key("2026-11-23", yours)


def _given(document: dict[str, Any], values: dict[str, str], job: dict[str, Any]):
    step = next(steps_of(document["Steps"]))
    return given_to(step, parameters(document, values), job)


def test_a_step_is_told_with_its_runs_values_and_what_others_made_by_name():
    source = {"DataSource": {"S3DataSource": {"S3Uri": {"Get": "Steps.Shard.Out"}}}}
    out = {"Get": "Execution.PipelineExecutionId"}
    document = {
        "Parameters": [{"Name": "lr", "Type": "Float", "DefaultValue": 0.1}],
        "Steps": [
            {
                "Name": "Train",
                "Type": "Training",
                "Arguments": {
                    "HyperParameters": {
                        "lr": {"Get": "Parameters.lr"},
                        "from": {"Get": "Steps.A.b"},
                    },
                    "InputDataConfig": [{"ChannelName": "train", **source}],
                    "OutputDataConfig": {
                        "S3OutputPath": {"Std:Join": {"On": "/", "Values": ["s3://b", out]}}
                    },
                },
            }
        ],
    }
    told = {"DataSource": {"S3DataSource": {"S3Uri": "s3://b/runs/x1/shards"}}, "Extra": 1}
    job = {
        "HyperParameters": {"lr": "0.5", "from": "here"},
        "InputDataConfig": [{"ChannelName": "train", **told}],
        "OutputDataConfig": {"S3OutputPath": "s3://b/x1"},
    }
    found = _given(document, {"lr": "0.5"}, job)
    texts = {path: one.text for path, one in found.fields.items()}
    assert texts["HyperParameters.lr"] == "0.5"
    assert texts["HyperParameters.from"] == "here"
    assert texts["InputDataConfig[train].S3Uri"] == "{Shard.Out}"
    assert texts["OutputDataConfig.S3OutputPath"] == "s3://b/{execution id}"
    assert found.uris["InputDataConfig[train].S3Uri"] == "s3://b/runs/x1/shards"
    before = _given(document, {}, {})
    assert before.fields["HyperParameters.from"].text == "{A.b}"
    assert "InputDataConfig[train].S3Uri" not in before.uris


def test_a_parameter_that_looks_like_a_secret_differs_and_is_hidden():
    one, other = (column(parameter_fields({"api_key": text})) for text in ("hunter2x", "hunter3x"))
    (row,) = rows([one, other])
    assert "hunter" not in "".join(value.text for value in row.values if value)
