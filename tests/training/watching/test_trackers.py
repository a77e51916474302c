"""TensorBoard and MLflow, written by real trainings and read back by their own libraries."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.training.trainings import SETTINGS, history, losses
from training.config import TrainConfig
from training.watching import trackers
from training.watching.trackers import find_tracking_uri, list_packages
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

CONFIG = TrainConfig(**SETTINGS)
SERVER = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/mine"


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return tag → (step, value), as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}


def forget(root: Path) -> None:
    """Delete the last checkpoint, as if the job had been interrupted before it."""
    [newest] = root.glob("checkpoints/*/step-00000010/complete.json")
    newest.unlink()


def test_a_line_s_names_of_inputs_and_ranks_have_tags():
    tags = {trackers.build_tag(key) for key in ("loss", "validation_loss.web", "own_seconds.rank3")}
    assert tags == {"train/loss", "validation/loss/web", "train/own_seconds/rank3"}


def test_tensorboard_shows_the_whole_curve_once_after_a_resume(root, train):
    train(root, tensorboard="true")
    forget(root)
    train(root, tensorboard="true")
    shown = curves(root / "output/tensorboard")
    for tag, name in (("train/loss", "loss"), ("validation/loss", "validation_loss")):
        steps, values = zip(*shown[tag], strict=True)
        assert list(steps) == list(losses(root, name))
        assert values == pytest.approx(list(losses(root, name).values()), rel=1e-6)
    assert set(shown) == {trackers.TAGS[key] for line in history(root) for key in line} - {
        "train/step"
    }


@pytest.mark.sweep
@pytest.mark.slow
def test_mlflow_goes_on_with_the_run_of_a_resumed_training(root, train):
    """Uses a local file, whose tables take MLflow seconds to create: one test checks everything."""
    from mlflow.tracking import MlflowClient

    train(root, mlflow_tracking_uri="local")
    client = MlflowClient(tracking_uri=f"sqlite:///{root}/output/data/mlflow.db")
    experiment = client.get_experiment_by_name("trainyard")

    def find_only_run():
        [run] = client.search_runs([experiment.experiment_id])
        return run

    assert find_only_run().info.status == "FINISHED"
    assert find_only_run().data.params["learning_rate"] == "0.01"
    assert find_only_run().data.params["workload"] == "toys.ragged"
    sent = client.get_metric_history(find_only_run().info.run_id, "train/loss")
    assert {metric.step: metric.value for metric in sent} == losses(root)

    config = CONFIG.model_copy(update={"mlflow_tracking_uri": "local"})
    [resumed] = trackers.create_trackers(config, root, "identity", {})
    resumed.begin([line for line in history(root) if "loss" in line])
    resumed.close(has_failed=True)
    [newest] = client.search_runs([experiment.experiment_id], max_results=1)
    assert newest.info.status == "FAILED"
    sent = client.get_metric_history(newest.info.run_id, "train/loss")
    assert {metric.step: metric.value for metric in sent} == losses(root)


def test_a_missing_package_ends_the_job_before_its_first_step(root, train, monkeypatch, capsys):
    monkeypatch.setattr(trackers, "find_spec", lambda module: None)
    with pytest.raises(SystemExit):
        train(root, tensorboard="true", mlflow_tracking_uri=SERVER)
    reason = (root / "output/failure").read_text()
    assert "lacks mlflow-skinny" in reason and "sagemaker-mlflow" in reason
    assert "tensorboard>=" in reason and "set tensorboard to false" in reason
    assert "step=1 " not in capsys.readouterr().out


def test_a_server_that_does_not_answer_ends_the_job_before_its_first_step(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    config = CONFIG.model_copy(update={"mlflow_tracking_uri": "http://127.0.0.1:9"})
    [tracker] = trackers.create_trackers(config, tmp_path, "identity", {})
    with pytest.raises(TrainingError, match="MLflow at http://127.0.0.1:9: .* to off"):
        tracker.begin([])


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ("environment", {}, None),
        ("environment", {"MLFLOW_TRACKING_URI": ""}, None),
        ("environment", {"MLFLOW_TRACKING_URI": "http://a"}, "http://a"),
        ("off", {"MLFLOW_TRACKING_URI": "http://a"}, None),
        ("http://b", {"MLFLOW_TRACKING_URI": "http://a"}, "http://b"),
    ],
)
def test_the_setting_goes_before_the_environment(given, environment, expected):
    config = CONFIG.model_copy(update={"mlflow_tracking_uri": given})
    assert find_tracking_uri(config, environment) == expected


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (None, set()),
        ("http://a", {"mlflow-skinny"}),
        (SERVER, {"mlflow-skinny", "sagemaker-mlflow"}),
        ("local", {"mlflow"}),
    ],
)
def test_only_what_is_asked_for_is_installed(uri, expected):
    needed = {re.split("[<>=]", one)[0] for one in list_packages(CONFIG, uri).values()}
    assert needed == expected


def test_the_trace_holds_the_steps_that_were_asked_for(root, train):
    train(root, profile_at=3, profile_steps=2)
    [path] = (root / "output/data/profile").iterdir()
    assert path.name == "steps-3-4.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    updates = [e for e in events if str(e.get("name")).startswith("Optimizer.step#AdamW.step")]
    assert len(updates) == 2


def test_without_traced_steps_there_is_no_file(alone):
    assert not (alone / "output/data").exists()
