"""The evaluate job for a script of one's own: run on both models, read, judged by the gate."""

import json
import shutil
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from steps.evaluate import job as evaluate_job
from steps.evaluate.evaluation_document import Evaluation, Latency
from steps.gate import job as gate_job
from tests.documents import keys_that_differ

pytestmark = pytest.mark.long

ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/mine/1"
SCRIPT = """
import argparse, json, math, os
parser = argparse.ArgumentParser()
parser.add_argument("--floor", type=float)
floor = parser.parse_args().floor
model = json.load(open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.json")))
rows = [line.split(",") for line in open(os.environ["SM_CHANNEL_TEST"] + "/test.csv")]
output = os.environ["SM_OUTPUT_DATA_DIR"]
with open(os.path.join(output, "scores.jsonl"), "w") as file:
    for name, user, x, y in rows[: model.get("rows")]:
        p = min(max(1 / (1 + math.exp(-model["slope"] * float(x))), floor), 1 - floor)
        loss = -math.log(p if int(y) else 1 - p)
        row = {"example": name, "group": user, "slice.sign": "+" if float(x) > 0 else "-"}
        row |= {"accuracy": (p > 0.5) == (y.strip() == "1"), "log_loss": loss}
        row |= {"probability": p, "label": int(y)}
        print(json.dumps(row | model.get("more", {})), file=file)
json.dump({"auc": 0.75}, open(os.path.join(output, "metrics.json"), "w"))
with open(os.path.join(output, "baseline.coin.jsonl"), "w") as file:
    for number, (name, user, x, y) in enumerate(rows):
        row = {"example": name, "group": user, "accuracy": number % 3 == 0, "log_loss": 0.7}
        print(json.dumps(row), file=file)
if "trained" in model:
    with open(os.path.join(output, "train_examples.jsonl"), "w") as file:
        for name, user in model["trained"]:
            print(json.dumps({"example": name, "group": user}), file=file)
if model.get("fails"):
    raise SystemExit("no such layer: decoder")
"""
METRICS = ("accuracy=higher", "log_loss=lower", "auc=higher")


def archive(folder: Path, **model) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.json").write_text(json.dumps(model))
    with tarfile.open(folder / "model.tar.gz", "w:gz") as tar:
        tar.add(folder / "weights.json", "weights.json")


@pytest.fixture
def root(tmp_path) -> Path:
    """Create SageMaker's /opt/ml for the job: script, test data, a model; and no champion."""
    inputs = tmp_path / "processing/input"
    for name in ("script", "test", "champion"):
        (inputs / name).mkdir(parents=True)
    (inputs / "script/evaluate.py").write_text(SCRIPT)
    lines = [f"row-{n},user-{n % 60},{(n % 7) - 3},{int(n % 5 > 1)}\n" for n in range(240)]
    (inputs / "test/test.csv").write_text("".join(lines))
    archive(inputs / "model", slope=0.3, trained=[["row-3", "user-3"], ["other", "user-7"]])
    (inputs / "champion/no-champion.json").write_text("{}")
    return tmp_path


def crown(root: Path, **model) -> None:
    (root / "processing/input/champion/no-champion.json").unlink()
    archive(root / "processing/input/champion", **model)


def words(*more: str) -> list[str]:
    return [
        *("--script", "evaluate.py", "--channels", "test", "--metrics", *METRICS),
        *("--arguments", '{"flo', 'or": 0.01}', "--baselines", "coin", *more),
    ]


def run_evaluation(root: Path, *more: str) -> dict:
    evaluate_job.main([*words(*more), "--root", str(root)])
    return json.loads((root / "processing/output/evaluation/evaluation.json").read_bytes())


def run_gate(root: Path, *more: str) -> dict:
    """gate.json on what the job left."""
    inputs, outputs = root / "gate/processing/input", root / "processing/output"
    inputs.mkdir(parents=True)
    for name in ("evaluation", "scores"):
        (inputs / name).symlink_to(outputs / name)
    gate_job.main(["--primary_metric", "accuracy", "--direction", "higher", *more,
                   "--root", str(root / "gate")])  # fmt: skip
    return json.loads((root / "gate/processing/output/gate/gate.json").read_bytes())


def failure(root: Path, *more: str) -> str:
    with pytest.raises(SystemExit):
        evaluate_job.main([*words(*more), "--root", str(root)])
    return (root / "output/message").read_text()


def test_both_models_are_scored_by_the_script_and_the_gate_compares_them(root):
    crown(root, slope=0.2)
    evaluation = run_evaluation(root, "--champion", ARN)
    assert not keys_that_differ(evaluation, Evaluation)
    folder = root / "processing/output/scores"
    ours, theirs = (pq.read_table(folder / f"{n}.parquet") for n in ("challenger", "champion"))
    assert len(ours) == evaluation["dataset"]["test_samples"] == 240
    assert ours["example"].equals(theirs["example"]) and not ours.equals(theirs)
    value = sum(ours["log_loss.sum"].to_pylist()) / 240
    assert evaluation["metrics"]["log_loss"]["value"] == pytest.approx(value)
    assert evaluation["metrics"]["auc"] == {"value": 0.75, "standard_error": None}
    assert evaluation["baselines"]["coin"] == pytest.approx({"accuracy": 1 / 3, "log_loss": 0.7})
    gate = run_gate(
        root,
        *("--threshold", "min_accuracy", "0.4", "--threshold", "min_auc", "0.7"),
        *("--below_baseline", "coin", "--non_inferiority", "log_loss", "lower", "0.5"),
        *("--slice_regression", "log_loss", "lower", "0.5", "--max_calibration_error", "0.9"),
        *("--champion", ARN, "--look", "1"),
    )
    assert gate["verdict"] == "pass", gate["reason"]
    assert (gate["examples"], gate["groups"]) == (240, 60)
    assert {part["slice"] for part in gate["slices"]} == {"sign=+", "sign=-"}


SUPERIOR = ("--superiority", "log_loss", "lower", "0")
NO_MEAN = "a metric that is not a mean over examples has no scores"
UNCOMPARED = "cannot be compared"


@pytest.mark.parametrize(
    ("champion", "words", "reason", "error"),
    [
        ({"slope": 3}, ("--non_inferiority", "accuracy", "higher", "0.01"), "accuracy", None),
        ({"slope": 0.2}, ("--superiority", "auc", "higher", "0"), NO_MEAN, None),
        ({"slope": 1, "rows": 100}, SUPERIOR, "not scored on the same examples", None),
        ({"slope": 1, "fails": True}, SUPERIOR, UNCOMPARED, "no such layer: decoder"),
        ({"slope": 1, "more": {"log_loss": None}}, SUPERIOR, UNCOMPARED,
         "line 1: column log_loss: is None"),
        ({}, SUPERIOR, UNCOMPARED, "KeyError: 'slope'"),
    ],
)  # fmt: skip
def test_a_model_that_is_worse_or_cannot_be_compared_with_the_champion_is_rejected(
    root, champion, words, reason, error
):
    crown(root, **champion)
    archive(root / "processing/input/model", slope=-0.3)
    evaluation = run_evaluation(root, "--champion", ARN)
    assert evaluation["metrics"] and bool(evaluation["champion"]["metrics"]) == (error is None)
    assert (error or "") in (evaluation["champion"]["error"] or "")
    gate = run_gate(root, *words, "--champion", ARN, "--look", "1")
    assert gate["verdict"] == "reject" and reason in gate["reason"]


MISSPELT = ("--metrics", "accuracy=higher", "log_loss=lower", "acuracy=higher")


@pytest.mark.parametrize(
    ("model", "words", "expected"),
    [
        ({"fails": True}, (), "evaluate.py: ended with exit status 1"),
        ({"fails": True}, (), "no such layer: decoder"),
        ({"more": {"example": "the same"}, "rows": 2}, (),
         "scores.jsonl: lines 1 and 2: column example: both are 'the same'"),
        ({"rows": 0}, (), "scores.jsonl: contains no rows"),
        ({}, MISSPELT, "metrics.json: auc is not listed in evaluate.metrics"),
        ({}, ("--baselines", "chance"), "wrote no baseline.chance.jsonl"),
        ({}, ("--leaks", "examples"), "wrote no train_examples.jsonl"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_scripts_output_ends_the_job(root, model, words, expected):
    archive(root / "processing/input/model", **{"slope": 1} | model)
    assert expected in failure(root, *words)


def test_leaks_are_those_of_the_examples_that_were_trained_on(root):
    evaluation = run_evaluation(root, "--leaks", "examples", "groups")
    assert evaluation["leakage"] == {
        "examples": 1, "groups": 2, "checked_examples": 240, "checked_groups": 60,
    }  # fmt: skip
    gate = run_gate(root, "--max_leaked_examples", "0")
    assert gate["verdict"] == "reject" and "1 of 240" in gate["reason"]


def test_the_fingerprint_is_of_every_byte_of_the_test_data_and_untold_leaks_are_unknown(root):
    archive(root / "processing/input/model", slope=1)
    evaluation = run_evaluation(root)
    first = evaluation["dataset"]
    assert first["channels"]["test"]["files"] == 1
    assert set(evaluation["leakage"].values()) == {None}
    for part in ("output", "work"):
        shutil.rmtree(root / "processing" / part)
    test = root / "processing/input/test/test.csv"
    test.write_text(test.read_text().replace("row-0,", "row-x,"))
    second = run_evaluation(root)["dataset"]
    assert first["test_fingerprint"] != second["test_fingerprint"]
    assert first["fingerprint"] != second["fingerprint"]
    test.unlink()
    message = failure(root)
    assert "channel test:" in message and "contains no files" in message


INFERENCE = """
import json

def model_fn(model_dir, context):
    return json.load(open(model_dir + "/weights.json"))

def input_fn(body, content_type):
    assert isinstance(body, str) and content_type == "application/json"
    return json.loads(body)

def predict_fn(request, model):
    return {"p": model["slope"] * request["x"]}

def output_fn(answer, accept, context=None):
    return json.dumps(answer)
"""
REQUEST = ("--request", "request.json", "application/json", "application/json")


def with_inference(root: Path, text: str) -> None:
    (root / "processing/input/script/request.json").write_text('{"x": 2}')
    folder = root / "processing/input/model"
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code/inference.py").write_text(text)
    with tarfile.open(folder / "model.tar.gz", "w:gz") as tar:
        for name in ("weights.json", "code/inference.py"):
            tar.add(folder / name, name)


def test_the_latency_is_of_the_inference_scripts_own_functions(root):
    with_inference(root, INFERENCE.replace("predict_fn", "predict"))
    message = failure(root, *REQUEST)
    assert "inference.py: ended with exit status 1" in message and "no predict_fn" in message
    shutil.rmtree(root / "processing/work", ignore_errors=True)
    shutil.rmtree(root / "processing/output", ignore_errors=True)
    with_inference(root, INFERENCE)
    latency = run_evaluation(root, *REQUEST)["latency"]
    assert not keys_that_differ(latency, Latency)
    assert 0 < latency["p50_ms"] <= latency["p95_ms"] and latency["samples"] == 100
    gate = run_gate(root, "--max_latency_p95_ms", "1000")
    assert gate["verdict"] == "pass", gate["reason"]


def test_the_job_needs_neither_torch_nor_pydantic(run_python):
    """The image is the script's: of our packages it gets only numpy and pyarrow."""
    heavy = "{'torch', 'pydantic', 'pandas', 'scipy', 'sagemaker', 'boto3'}"
    code = "import sys, steps.evaluate.job, steps.evaluate.script_evaluation; "
    done = run_python("-c", f"{code}print(sorted({heavy} & set(sys.modules)))")
    assert done.stdout.strip() == "[]"
