"""TensorBoard and MLflow: rank 0's metrics outside of the log. Their packages are imported on
demand.
"""

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from training.config import TrainConfig
from training.watching.metric_line import NAMES, format_metric_line
from training.watching.watcher import Event
from trainyard.common import atomic_file
from trainyard.common.atomic_file import storage_errors
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

TAGS = {key: name.replace(":", "/") for name, key in NAMES.items()}
"""Mapping of a name in the metric line to a tag such as ``train/loss``, ``validation/loss``."""
URI = "MLFLOW_TRACKING_URI"


def build_tag(key: str) -> str:
    """Return the name of a metric in a tracker: ``loss`` becomes ``train/loss``.

    A metric of an input or a rank, such as ``validation_loss.web``, becomes
    ``validation/loss/web``.
    """
    name, _, suffix = key.partition(".")
    base_tag = TAGS.get(name, f"train/{name}")
    return f"{base_tag}/{suffix}" if suffix else base_tag


class Tracker(Protocol):
    """Receives metric lines."""

    def begin(self, history: Sequence[Mapping[str, float]]) -> None:
        """Start after the steps whose lines are ``history``."""

    def log(self, metrics: Mapping[str, float]) -> None: ...

    def close(self, *, has_failed: bool) -> None: ...


def find_tracking_uri(config: TrainConfig, environment: Mapping[str, str]) -> str | None:
    """Return MLflow's tracking URI, ``local`` for a file of the job, or None without MLflow."""
    if config.mlflow_tracking_uri == "environment":
        return environment.get(URI) or None
    return None if config.mlflow_tracking_uri == "off" else config.mlflow_tracking_uri


def list_packages(config: TrainConfig, uri: str | None) -> dict[str, str]:
    """Return a mapping of each module that the trackers need to the pip requirement that
    provides it.
    """
    requirements = {"tensorboard": "tensorboard>=2.15,<3"} if config.tensorboard else {}
    if uri is None:
        return requirements
    if uri == "local" or uri.startswith("sqlite:"):
        return requirements | {"mlflow": "mlflow>=3,<4", "sqlalchemy": "mlflow>=3,<4"}
    requirements["mlflow"] = "mlflow-skinny>=3,<4"
    if uri.startswith("arn:"):  # SageMaker's managed server
        requirements["sagemaker_mlflow"] = "sagemaker-mlflow>=0.1,<1"
    return requirements


def create_trackers(
    config: TrainConfig, root: Path, name: str, job: Mapping[str, Any]
) -> list[Tracker]:
    """Return the trackers that the configuration enables; nothing is imported or contacted yet.

    Args:
        root: /opt/ml.
        name: the training's identity, a tag of its MLflow runs.
        job: further parameters of the MLflow run.

    Raises:
        TrainingError: a package that they need is missing.
    """
    uri = find_tracking_uri(config, os.environ)
    missing = {
        package for module, package in list_packages(config, uri).items() if not find_spec(module)
    }
    if missing:
        raise TrainingError(
            f"tensorboard is {config.tensorboard} and MLflow's tracking URI {uri}, but the "
            f"container lacks {', '.join(sorted(missing))}: install it (a recipe's train step does "
            "so by itself), or set tensorboard to false and mlflow_tracking_uri to off"
        )
    active: list[Tracker] = []
    if config.tensorboard:
        active.append(TensorBoard(root / "output/tensorboard"))
    if uri == "local":
        uri = f"sqlite:///{root / 'output/data/mlflow.db'}"
    if uri:
        active.append(MLflow(uri, name, {**config.model_dump(mode="json"), **job}))
    return active


class TensorBoard:
    """Event files in the folder that SageMaker copies to ``TensorBoardOutputConfig``'s S3 path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, history: Sequence[Mapping[str, float]]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Files of an earlier process are obsolete, because everything is written again.
        self._writer = SummaryWriter(str(self._folder), purge_step=0, flush_secs=30)
        for line in history:
            self.log(line)

    def log(self, metrics: Mapping[str, float]) -> None:
        with storage_errors(self._folder):
            for key, value in metrics.items():
                if key != "step":
                    self._writer.add_scalar(build_tag(key), value, int(metrics["step"]))

    def close(self, *, has_failed: bool) -> None:
        with storage_errors(self._folder):
            self._writer.close()


class MLflow:
    """A run on a tracking server, or in a local file.

    MLflow's own thread sends the metrics: the training does not wait for the server, and continues
    if it fails.
    """

    def __init__(self, uri: str, name: str, parameters: Mapping[str, Any]) -> None:
        self._uri, self._name, self._parameters = uri, name, parameters
        self._operations: list[Any] = []

    def begin(self, history: Sequence[Mapping[str, float]]) -> None:
        """Begin a run, and log the training's earlier lines to it.

        Raises:
            TrainingError: the server does not respond, or rejects the request.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # send nothing to third parties
        if self._uri.startswith("sqlite:///"):
            Path(self._uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)

        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            self._client = MlflowClient(tracking_uri=self._uri)
            self._run = self._create_run()
            for line in history:
                self.log(line)
        except MlflowException as error:
            raise TrainingError(
                f"MLflow at {self._uri}: {error}; look at the URI, the network and the role's "
                "permissions, or set mlflow_tracking_uri to off"
            ) from error

    def log(self, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now, step = int(time.time() * 1000), int(metrics["step"])
        values = [Metric(build_tag(k), v, now, step) for k, v in metrics.items() if k != "step"]
        self._operations.append(
            self._client.log_batch(self._run, metrics=values, synchronous=False)
        )

    def close(self, *, has_failed: bool) -> None:
        """Wait until everything is sent. Metrics that the server did not accept do not fail the
        training.
        """
        from mlflow.exceptions import MlflowException

        try:
            for operation in self._operations:
                operation.wait()
            self._client.set_terminated(self._run, "FAILED" if has_failed else "FINISHED")
        except MlflowException as error:
            log.warning(
                "MLflow at %s did not accept all metrics: %s; the model's history.jsonl has them",
                self._uri,
                error,
            )

    def _create_run(self) -> str:
        """Create a run with the training's parameters, and the experiment if it is missing."""
        from mlflow.entities import Param

        client = self._client
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "trainyard")
        experiment = client.get_experiment_by_name(title)
        key = experiment.experiment_id if experiment else client.create_experiment(title)
        job = os.environ.get("TRAINING_JOB_NAME", self._name)
        run = client.create_run(key, tags={"trainyard.training": self._name}, run_name=job)
        parameters = [Param(name, str(value)) for name, value in self._parameters.items()]
        client.log_batch(run.info.run_id, params=parameters)
        return run.info.run_id


# Output of a training run: metric lines, their history, and the trackers that receive them.


class Reports:
    """Report metric lines on rank 0: print, keep and forward them to the trackers; other ranks do
    nothing.

    The history is written to the folder of the checkpoints whenever one is saved, completely and
    atomically, and is read back up to the resumed step. So it contains each step once, since the
    beginning of the training and not of the process.

    Args:
        path: the history's file, in the folder that SageMaker synchronises with S3.
    """

    def __init__(self, path: Path, rank: int, trackers: Sequence[Tracker] = ()) -> None:
        self._path, self._first, self._trackers = path, rank == 0, trackers
        self._open_trackers: list[Tracker] = []
        self.history: list[dict[str, float]] = []

    def __enter__(self) -> "Reports":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for tracker in self._open_trackers:
            tracker.close(has_failed=kind is not None)

    def begin(self, step: int) -> None:
        """Start reporting before the first step of this process.

        Args:
            step: number of steps that are already done.

        Raises:
            TrainingError: a tracker cannot be reached.
        """
        if not self._first:
            return
        self.history = read_history(self._path, step)
        for tracker in self._trackers:
            tracker.begin(self.history)
            self._open_trackers.append(tracker)

    def report_metrics(self, metrics: Mapping[str, float]) -> None:
        """Report a metric line; one of the metrics must be ``step``."""
        if not self._first:
            return
        self._add(format_metric_line(metrics), metrics)

    def report_event(self, event: Event) -> None:
        """Report what a rule has found; call it on rank 0 only."""
        self._add(event.line, event.metrics)

    def save_history(self) -> None:
        """Write the history; called before a checkpoint is saved, so that a resumed training has
        its curve.
        """
        if self._first:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lines = "".join(json.dumps(line) + "\n" for line in self.history)
            atomic_file.write_file(self._path, lines)

    def _add(self, text: str, metrics: Mapping[str, float]) -> None:
        """Print a line, add it to the history, and pass it to the trackers."""
        print(text, flush=True)
        self.history.append(dict(metrics))
        for tracker in self._open_trackers:
            tracker.log(metrics)


def read_history(path: Path, step: int) -> list[dict[str, float]]:
    """Return the metric lines up to a step; if they are missing or damaged, warn and return
    none.
    """
    if not step:
        return []
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if line["step"] <= step]
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: the curve begins at step %d (%s)", path, step, error)
        return []
