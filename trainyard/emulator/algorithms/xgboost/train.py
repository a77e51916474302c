"""The image's ``train`` command: read the contract's files, train, write ``xgboost-model``.

    train.py IMAGE_MAJOR IMAGE_MINOR

Not supported: several hosts, Dask on several GPUs and cross validation (``_kfold``). The emulator
refuses them before the job starts.
"""

import json
import os
import pickle
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xgboost

from trainyard.emulator.algorithms.xgboost import xgboost_metrics
from trainyard.emulator.algorithms.xgboost.channel_data import Rows, read_channel
from trainyard.emulator.algorithms.xgboost.facts import MAXIMIZED_METRICS, MODEL, find_file_format
from trainyard.emulator.algorithms.xgboost.hyperparameters import UserError, convert_hyperparameters

# The last version whose model is a pickle; later ones use Booster.save_model.
PICKLE_VERSIONS = (1, 2)
CHECKPOINT = "xgboost-checkpoint"
_ERRORS_OF_USERS = (
    "label must be in [0,1] for logistic regression",
    "label must be in [0, num_class)",
    "Target is multiclass but average='binary'",
    "feature_names mismatch",
    "Check failed: preds.size() == info.labels_.size()",
    "the dataset only contains pos or neg samples",
    "base_score must be in (0,1)",
    "label must be nonnegative",
    "Parameter reg_lambda should be greater equal to 0",
)
_OWN_PARAMETERS = (
    *("num_round", "csv_weights", "early_stopping_rounds", "_tuning_objective_metric"),
    *("save_model_on_termination", "use_dask_gpu_training", "_num_cv_round", "silent"),
)
"""Hyperparameters of the container, which XGBoost itself does not know."""


class AlgorithmError(Exception):
    """XGBoost failed for a reason that is not the user's input."""


@dataclass(frozen=True, slots=True)
class Job:
    """A training job. ``base`` is the folder /opt/ml; ``version`` is the image's version."""

    base: Path
    version: tuple[int, int]

    def read_config(self, name: str) -> dict:
        """Return the JSON file ``name`` of input/config; {} if it does not exist."""
        path = self.base / f"input/config/{name}.json"
        return json.loads(path.read_text()) if path.is_file() else {}


def print_info(text: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d:%H:%M:%S')}:INFO] {text}", flush=True)


def run_job(job: Job) -> None:
    """Train and save the model. Raises UserError, AlgorithmError."""
    print_info("Running XGBoost Sagemaker in algorithm mode")
    values = convert_hyperparameters(job.read_config("hyperparameters"), job.version)
    print_info("Single node training.")
    booster = _train_model(job, values, _load_matrices(job, bool(values.get("csv_weights"))))
    save_model(booster, job.base / "model" / MODEL, job.version)


def _load_matrices(job: Job, has_weights: bool) -> dict[str, xgboost.DMatrix]:
    """Return the matrix of each channel."""
    channels = job.read_config("inputdataconfig")
    _check_channels(channels)
    form = find_file_format(channels["train"].get("ContentType")) or ""
    rows_by_channel: dict[str, Rows] = {}
    for name in [name for name in ("train", "validation") if name in channels]:
        folder = job.base / "input/data" / name
        if (rows := read_channel(folder, form, has_weights)) is None:
            raise UserError(f"No data in {_WORDS[name]} channel path {folder}")
        rows_by_channel[name] = rows
    width = max(rows.features.shape[1] for rows in rows_by_channel.values())
    full = {name: rows.widen_rows(width) for name, rows in rows_by_channel.items()}
    print_info(f"Train matrix has {len(full['train'].label)} rows and {width} columns")
    if "validation" in full:
        print_info(f"Validation matrix has {len(full['validation'].label)} rows")
    return {
        name: xgboost.DMatrix(rows.features, label=rows.label, weight=rows.weight)
        for name, rows in full.items()
    }


_WORDS = {"train": "training", "validation": "validation"}


def _check_channels(channels: dict) -> None:
    if "train" not in channels:
        raise UserError("Missing required channel: train")
    if extra := channels.keys() - {"train", "validation", "code"}:
        raise UserError(f"Extraneous channel found: {min(extra)}")


def _train_model(
    job: Job, values: dict[str, Any], matrices: dict[str, xgboost.DMatrix]
) -> xgboost.Booster:
    """Return the trained model; continue from the newest checkpoint if there is one."""
    objective = values.get("objective", "reg:squarederror")
    metrics = _list_metrics(values)
    custom_metrics = [name for name in metrics if name in xgboost_metrics.CUSTOM]
    parameters = {name: value for name, value in values.items() if name not in _OWN_PARAMETERS}
    parameters = _convert_parameters(
        parameters, [name for name in metrics if name not in custom_metrics]
    )
    earlier_model, completed_rounds = _find_checkpoint(job)
    rounds = values["num_round"] - completed_rounds
    if rounds < 1:
        return xgboost.Booster(model_file=earlier_model)
    try:
        return xgboost.train(
            parameters,
            matrices["train"],
            num_boost_round=rounds,
            evals=[(matrix, name) for name, matrix in matrices.items()],
            custom_metric=xgboost_metrics.make_evaluator(custom_metrics, objective)
            if custom_metrics
            else None,
            callbacks=_make_callbacks(
                job, values, metrics, "validation" in matrices, completed_rounds
            ),
            xgb_model=earlier_model,
            verbose_eval=False,
        )
    except (xgboost.core.XGBoostError, ValueError) as error:
        text = str(error)
        if any(phrase in text for phrase in _ERRORS_OF_USERS):
            raise UserError(text) from None
        raise AlgorithmError(f"XGB train call failed with exception:\n {text}") from None


def _list_metrics(values: dict[str, Any]) -> list[str]:
    """Return the metrics of eval_metric, and the tuning job's objective metric if there is one."""
    objective = values.get("_tuning_objective_metric", ":").split(":")[1]
    metrics = values.get("eval_metric", [])
    return sorted({*metrics, objective}) if objective else list(metrics)


def _convert_parameters(parameters: dict[str, Any], metrics: list[str]) -> dict[str, Any]:
    """Return the parameters in the form that XGBoost accepts on a machine without a GPU."""
    parameters = {k: v for k, v in parameters.items() if k != "eval_metric"}
    if metrics:
        parameters["eval_metric"] = metrics
    if "updater" in parameters:
        parameters["updater"] = ",".join(parameters["updater"])
    if "interaction_constraints" in parameters:
        parameters["interaction_constraints"] = json.dumps(parameters["interaction_constraints"])
    if parameters.get("tree_method") == "gpu_hist":
        print_info("tree_method gpu_hist is replaced by hist: there is no GPU")
        parameters["tree_method"] = "hist"
    if parameters.get("objective") == "reg:linear":
        parameters["objective"] = "reg:squarederror"  # the new name since 0.83
    return parameters


def _find_checkpoint(job: Job) -> tuple[str | None, int]:
    """Return the path of the newest checkpoint and its number of rounds. Return None and 0 if there
    is none.
    """
    folder = job.read_config("checkpointconfig").get("LocalPath")
    checkpoints = {
        int(match[1]): str(path)
        for path in (Path(folder).glob(f"{CHECKPOINT}*") if folder else ())
        if (match := re.fullmatch(rf"{CHECKPOINT}[._](\d+)(\.\w+)?", path.name))
    }
    if not checkpoints:
        return None, 0
    newest = checkpoints[max(checkpoints)]
    completed_rounds = xgboost.Booster(model_file=newest).num_boosted_rounds()
    print_info(f"Checkpoint loaded from {newest}")
    print_info(f"Resuming from iteration {completed_rounds}")
    return newest, completed_rounds


def _make_callbacks(
    job: Job,
    values: dict[str, Any],
    metrics: list[str],
    has_validation: bool,
    completed_rounds: int,
) -> list[xgboost.callback.TrainingCallback]:
    """Return the callbacks for logging, checkpoints, saving and early stopping."""
    callbacks: list[xgboost.callback.TrainingCallback] = [ScorePrinter(completed_rounds)]
    if folder := job.read_config("checkpointconfig").get("LocalPath"):
        callbacks.append(xgboost.callback.TrainingCheckPoint(folder, CHECKPOINT, interval=1))
    if values.get("save_model_on_termination") == "true":
        target = job.base / "model" / MODEL
        callbacks.append(ModelSaver(lambda booster: save_model(booster, target, job.version)))
    if rounds := values.get("early_stopping_rounds"):
        # Early stopping uses the tuning objective, or else the last eval_metric.
        objective = values.get("_tuning_objective_metric", ":").split(":")[1]
        metric = objective or next(iter(reversed(values.get("eval_metric", []))), None)
        callbacks += _make_early_stopping(job, rounds, metric, has_validation)
    return callbacks


def _make_early_stopping(
    job: Job, rounds: int, metric: str | None, has_validation: bool
) -> list[xgboost.callback.TrainingCallback]:
    """Return a list with the early-stopping callback, or an empty list if it has no effect."""
    old = job.version <= PICKLE_VERSIONS
    # Since 1.3, early stopping needs a validation channel and a named metric, and it keeps the best
    # round's model.
    if not old and not (metric and has_validation):
        print_info(
            "early_stopping_rounds has no effect: it needs a validation channel and eval_metric"
        )
        return []
    return [
        xgboost.callback.EarlyStopping(
            rounds=rounds,
            metric_name=metric,
            data_name="validation" if has_validation else "train",
            maximize=metric.partition("@")[0] in MAXIMIZED_METRICS if metric else None,
            save_best=not old,
        )
    ]


class ScorePrinter(xgboost.callback.TrainingCallback):
    """Print scores as ``[0]#011train-rmse:8.1``.

    CloudWatch shows a tab as ``#011``, and the regular expressions of the metrics expect it.
    ``completed_rounds`` is the number of rounds before this run, from a checkpoint.
    """

    def __init__(self, completed_rounds: int) -> None:
        super().__init__()
        self._completed_rounds = completed_rounds

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Print the scores of the round just finished. Return False, so that training continues."""
        line = f"[{epoch + self._completed_rounds}]"
        for data, scores in evals_log.items():
            line += "".join(f"#011{data}-{name}:{log[-1]:.5f}" for name, log in scores.items())
        print(line, flush=True)
        return False


class ModelSaver(xgboost.callback.TrainingCallback):
    """Save the model after each round, so that a stopped job has a model."""

    def __init__(self, save: Callable[[xgboost.Booster], None]) -> None:
        super().__init__()
        self._save = save
        # SIGTERM ends the process immediately with status 0, because the last round's model is
        # already saved.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Save the model of the round just finished. Return False, so that training continues."""
        self._save(model)
        return False


def save_model(booster: xgboost.Booster, path: Path, version: tuple[int, int]) -> None:
    """Save the model, as a pickle up to image version 1.2, else in XGBoost's own format."""
    # Write to a draft first, so that ``path`` only ever exists complete.
    draft = path.with_name(f".{path.name}")
    if version <= PICKLE_VERSIONS:
        draft.write_bytes(pickle.dumps(booster, protocol=4))
    else:
        with warnings.catch_warnings():  # warns that the name has no suffix
            warnings.simplefilter("ignore", UserWarning)
            booster.save_model(draft)
    draft.replace(path)


def main() -> int:
    """Run the job and return the exit status. Also write an error to output/failure."""
    major, minor = sys.argv[1:]
    job = Job(Path(os.environ["SAGEMAKER_BASE_DIR"]), (int(major), int(minor)))
    try:
        run_job(job)
    except (UserError, AlgorithmError) as error:
        text = f"framework error: \nsagemaker_algorithm_toolkit.exceptions.{type(error).__name__}: "
        (job.base / "output/failure").write_text(f"{text}{error}")
        print(f"{text}{error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
