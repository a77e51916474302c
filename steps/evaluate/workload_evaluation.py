"""Score the trained model, the champion and the baselines on the test split.

python steps/evaluate/job.py [--baseline_units N] [--champion ARN] [--slices NAME …]
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from conditions.no_champion import UNRESOLVED_ARN
from steps.evaluate import evaluation_document
from steps.evaluate.baseline_scores import TrainSplit, compute_baselines, score_baseline
from steps.evaluate.latency import REQUESTS, WARM, measure_latency
from steps.evaluate.leaked_examples import count_leakage
from steps.evaluate.score_rows import (
    Scoring,
    Source,
    TrainedModel,
    compute_rows,
    open_champion,
    open_trained_model,
    place_model,
)
from steps.evaluate.score_table import Scores, list_tables, write_scores
from steps.evaluate.settings import EvaluateSettings
from steps.job_arguments import parse_typed_arguments
from training.cpu_cores import limit_torch_threads
from training.data.dataset import Dataset
from training.data.loader import Preparation
from training.scores import Block, Metrics
from training.weights.starting_weights import BASE, BASE_MODEL
from training.workloads import Workload, load_spec
from trainyard.common.errors import DataError
from trainyard.common.hashes import combine_file_hashes, hash_file, hash_lines


def evaluate_models(options: argparse.Namespace) -> None:
    """Score the models and baselines, and write the tables of scores and then evaluation.json."""
    limit_torch_threads()
    # scikit-learn's OpenMP, which is loaded later, reads this variable: threads that wait for a
    # core then do not spin. On a busy machine, spinning turns seconds into minutes.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    inputs = options.root / "processing/input"
    base = inputs / BASE if options.base else None
    challenger = open_trained_model(inputs / "model", base=base)
    train, test = TrainSplit.open(inputs), Dataset(inputs / "test")
    fingerprint = challenger.description["train_fingerprint"]
    if fingerprint != train.split.fingerprint:
        raise DataError(
            f"the model was trained on dataset {fingerprint}, the baselines would be fitted on "
            f"{train.split.fingerprint}; run the train step on this dataset"
        )
    workload, description = challenger.workload, challenger.description
    evaluation: dict[str, Any] = {
        **_score_models(options, challenger, test, base),
        "baselines": compute_baselines(options, description["workload"], workload, train, test)
        | (_score_base(options, base, challenger, test) if base else {}),
        "dataset": _build_dataset_entry(train.split, test)
        | {
            "train_manifests_sha256": _hash_manifests(train.folder),
            "test_manifests_sha256": _hash_manifests(inputs / "test"),
        }
        | (
            {"summary_manifests_sha256": _hash_manifests(train.folder, "**/")}
            if train.example_names is not None
            else {}
        ),
        "leakage": count_leakage(train.iter_examples(workload), workload.examples(test)),
        "latency": measure_test_latency(workload, place_model(challenger.model), test),
        "artifact": challenger.artifact,
        "scores": list_tables(options.root / "processing/output/scores"),
        "model": {
            key: description[key]
            for key in ("steps", "parameters", "world_size", "packages_sha256")
        }
        | {"precision": description["train_config"]["precision"]}
        | ({BASE: description[BASE]} if base else {})
        | {"training": {key: description["training"][key] for key in ("identity", "stretches")}},
    }
    evaluation_document.write_evaluation(options.root / "processing/output/evaluation", evaluation)


def _score_models(
    options: argparse.Namespace, challenger: TrainedModel, test: Dataset, base: Path | None
) -> dict[str, Any]:
    """Write the tables of challenger and champion; return evaluation.json's entries about them."""
    workload, folder = challenger.workload, options.root / "processing/input/champion"
    champion, reason = open_champion(folder, options.champion, challenger, base)

    def score_model(name: str, trained: TrainedModel) -> Metrics:
        """Write the table of scores ``<name>.parquet`` of a model; return its metrics."""
        # The challenger's workload is used for both, because it defines the slices.
        model, slices = lambda: trained.model, options.slices
        rows = _score_rows(options, name, challenger, trained.source, model, test, slices)
        path = options.root / f"processing/output/scores/{name}.parquet"
        arn = options.champion if champion else None
        write_scores(path, rows, _build_header(name, arn, trained, challenger, test))
        return workload.metrics(Scores(path))

    return {
        "metrics": score_model("challenger", challenger),
        "champion": {
            "arn": options.champion,
            "metrics": score_model("champion", champion) if champion else {},
            "artifact": champion.artifact if champion else None,
            "error": reason,
        },
    }


def _score_rows(
    options: argparse.Namespace,
    table: str,
    challenger: TrainedModel,
    source: Source,
    model: Callable[[], nn.Module],
    test: Dataset,
    slices: Sequence[str] = (),
) -> Iterator[Block]:
    """Yield the scores of a model; worker processes open ``source`` themselves."""
    description = challenger.description
    scoring = Scoring(
        table,
        description["workload"],
        description["workload_config"],
        challenger.source.folder,
        source,
        options.root / "processing/input/test",
        tuple(slices),
    )
    folder = options.root / "processing/output/scores"
    return compute_rows(scoring, challenger, model, test, folder, options.processes)


def _score_base(
    options: argparse.Namespace, base: Path, challenger: TrainedModel, test: Dataset
) -> dict[str, dict[str, float]]:
    """Write the scores of the model from which training started; return {BASE_MODEL: metrics}."""
    workload, name = challenger.workload, challenger.description["workload"]
    source = Source(base, uri=options.base)
    model = partial(source.load_model, workload, name)
    blocks = _score_rows(options, BASE_MODEL, challenger, source, model, test)
    sha256 = challenger.description[BASE]["sha256"]
    return {BASE_MODEL: score_baseline(options, BASE_MODEL, workload, name, test, blocks, sha256)}


def _build_header(
    name: str, champion: str | None, trained: TrainedModel, challenger: TrainedModel, test: Dataset
) -> dict[str, Any]:
    """Return the header of a table of scores."""
    return {
        "model": name,
        "champion": champion,
        "test_fingerprint": test.fingerprint,
        "train_fingerprint": trained.description.get("train_fingerprint"),
        "artifact_sha256": trained.artifact["sha256"] if trained.artifact else None,
        "metrics": dict(load_spec(challenger.description["workload"]).metrics),
        "ranges": dict(load_spec(challenger.description["workload"]).ranges),
        "groups_ordered": challenger.workload.packing.info.get("groups_ordered", False),
    }


def _hash_manifests(folder: Path, below: str = "") -> str:
    """Return one hash over all bytes of the manifests; ``below``: glob of subfolders, or empty.

    A dataset's fingerprint covers only what samples depend on.
    """
    files = folder.glob(f"{below}manifest-*.json")
    return combine_file_hashes({f.relative_to(folder).as_posix(): hash_file(f) for f in files})


def _build_dataset_entry(train: Dataset, test: Dataset) -> dict[str, Any]:
    return {
        "fingerprint": hash_lines((train.fingerprint, test.fingerprint)),
        "train_fingerprint": train.fingerprint,
        "test_fingerprint": test.fingerprint,
        "train_samples": len(train),
        "test_samples": len(test),
        "test_records": test.records,
    }


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--champion", default=UNRESOLVED_ARN, help="the champion's ARN, none, or unresolved"
    )
    parser.add_argument(f"--{BASE}", help="URI of the model from which the training started")
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return parse_typed_arguments(parser, arguments, EvaluateSettings)


def measure_test_latency(workload: Workload, model: nn.Module, test: Dataset) -> dict[str, Any]:
    """Return the latency of requests with one sample each, spread evenly over the test split.

    Measured from stored arrays in memory to outputs in memory, on the model's device, with the
    workload's ``prepare`` included: no network, no parsing.
    """
    device = next(model.parameters()).device
    indices = np.linspace(0, len(test) - 1, WARM + REQUESTS).astype(np.int64)
    preparation = Preparation.from_workload(workload, threads=1)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return measure_latency(
        lambda number: _time_request(workload, model, test, indices[number], preparation),
        name,
        torch.get_num_threads(),
    )


@torch.inference_mode()
def _time_request(
    workload: Workload, model: nn.Module, test: Dataset, index: int, preparation: Preparation
) -> float:
    """Return the seconds of one request, from the stored sample to the output in memory."""
    device = next(model.parameters()).device
    samples = test.read([index])
    began = time.perf_counter()
    prepared = preparation.make_batch(samples)
    batch = {name: tensor.to(device) for name, tensor in prepared.items()}
    model(*workload.inputs(batch)).cpu()  # waits for the device
    return time.perf_counter() - began
