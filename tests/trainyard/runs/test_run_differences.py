"""What is called different differs, and what is called the same is the same."""

from typing import Any

from trainyard.language.definition_document import steps_of
from trainyard.language.expressions import values
from trainyard.runs.run_differences import key, parameter_fields, step_inputs


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


def _given(document: dict[str, Any], texts: dict[str, str], job: dict[str, Any]):
    step = next(steps_of(document["Steps"]))
    return step_inputs(step, values(document, texts), job)


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
    one, other = (
        parameter_fields({"api_key": text})["api_key"] for text in ("hunter2x", "hunter3x")
    )
    assert key(one.raw, {}) != key(other.raw, {})
    assert "hunter" not in one.text + other.text
