r"""Train on the shards; started by torchrun or mpirun, once per rank.

torchrun --nproc_per_node 2 steps/train/job.py --workload language_model --workload_config '{…}' \
    --max_steps 300 --global_batch 32 --micro_batch 8 --learning_rate 0.003
"""

import argparse
import atexit
import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

from steps import job_main
from steps.job_arguments import add_options, read_typed_settings
from steps.workload_settings import overlay_settings, separate_settings
from training.config import TrainConfig
from training.in_place_restart import Attempt, refuse_failed_attempt
from training.input_shares import parse_mixture
from training.strategy_table import explain_unfit_torch
from training.watching.watcher import parse_watching
from training.weights.finetuning.adapters import NO_BASE, explain_impossible_adapters, parse_tuning
from training.weights.starting_weights import CHANNEL, check_step, open_start, parse_start
from training.workloads import parse_settings
from trainyard.common.errors import LostRankError, TrainingError, TrainyardError
from trainyard.common.process import exclude_from_gc


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the job's arguments.

    They are every field of TrainConfig, the workload, those of its settings that a search varies,
    and the folders.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--workload_config", default="{}", help="the workload's settings as JSON")
    parser.add_argument("--start_from", default="", help="StartFrom as JSON; empty: fresh weights")
    parser.add_argument("--mixture", default="", help="Mixture as JSON; empty: data of one input")
    parser.add_argument("--tuning", default="", help="Tuning as JSON; empty: all weights")
    parser.add_argument("--watch", default="", help="Watching as JSON; empty: each rule warns")
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    # SMP (SageMaker's model parallel library) reads this argument itself.
    parser.add_argument("--mp_parameters", help=argparse.SUPPRESS)
    add_options(parser, TrainConfig)
    remaining_arguments, search_values = separate_settings(arguments)
    options = parser.parse_args(remaining_arguments)
    options.searched = search_values
    return options


def read_config(options: argparse.Namespace) -> TrainConfig:
    """Return the hyperparameters in the options, converted to their types.

    Raises:
        TrainingError: a value is wrong or missing. The message has its name, its value and what was
            expected.
    """
    try:
        return read_typed_settings(options, TrainConfig, "hyperparameter")
    except ValueError as error:
        raise TrainingError(str(error)) from None


def run_training(options: argparse.Namespace, steps: list[int]) -> None:
    """Build the training from the arguments, run it, and let rank 0 save the model.

    The number of each step that is reported is added to ``steps``.
    """
    failure = options.root / "output/failure"
    refuse_failed_attempt(failure)
    session_fields = _read_session_fields(options)
    # Exclude from garbage collection only in a process that imports torch for the first time. In a
    # test or a notebook, the objects that exist already can still be collected.
    with contextlib.nullcontext() if "torch" in sys.modules else exclude_from_gc():
        import torch

        from training import session

    if refusal := explain_unfit_torch(session_fields["config"], torch.__version__):
        raise TrainingError(refusal)
    training = session.JobSettings(**session_fields)
    built = session.build_training(training)
    # The callback is called in the watchdog's thread, because the main thread may never return from
    # a collective.
    session.run(training, built, steps, lambda error: _end_at_once(error, failure))


def _read_session_fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of ``training.session.JobSettings`` as a dict, from the options.

    Raises:
        TrainingError: a value is wrong; the message names it.
    """
    config = read_config(options)
    start = None
    if start_from := parse_start(options.start_from):
        start = open_start(start_from, options.root / "input/data" / CHANNEL)
        check_step(start, config)
    settings = overlay_settings(parse_settings(options.workload_config), options.searched)
    mixture, tuning = parse_mixture(options.mixture), parse_tuning(options.tuning)
    if tuning.adapters and (start is None or start.base is None):
        raise TrainingError(f"train.adapters: {NO_BASE}")
    if tuning.adapters and (refusal := explain_impossible_adapters(config)):
        raise TrainingError(refusal)
    return {
        "config": config,
        "workload": options.workload,
        "settings": settings,
        "root": options.root,
        "job": Path(__file__),
        "start": start,
        "mixture": mixture,
        "tuning": tuning,
        "watching": parse_watching(options.watch),
    }


def report_failure(error: TrainyardError, failure: Path) -> None:
    """Report the error as ``job_main`` does, but not a lost rank that torchrun restarts."""
    attempt = Attempt.from_environment()
    if attempt.is_restarted_after(error):
        print(f"error: {error}", flush=True)
        return
    if isinstance(error, LostRankError) and attempt.max_restarts:
        error = LostRankError(
            f"{error}; restarted {attempt.max_restarts} times already (train.max_restarts)"
        )
    job_main.report_failure(error, failure)


def _end_at_once(error: LostRankError, failure: Path) -> None:
    """Report the error and exit the process, from the watchdog's thread.

    The main thread may never return from a collective.
    """
    report_failure(error, failure)
    os._exit(1)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    failure = options.root / "output/failure"
    steps: list[int] = []
    try:
        job_main.run(lambda: run_training(options, steps), failure, report_failure)
    except Exception as error:
        if not Attempt.from_environment().is_restarted_after(error, has_stepped=bool(steps)):
            job_main.write_message(f"{type(error).__name__}: {error}", failure)
        raise


def _end_process() -> None:
    """End the process with status 0, without tearing the interpreter down.

    If one of torch's threads needs Python's lock during the teardown, it aborts the process
    ("terminate called without an active exception"). This was seen at the end of a training job
    whose model had already been written.
    """
    if "mpi4py.MPI" in sys.modules:
        return  # because mpirun fails a job whose processes do not finalize MPI
    # The interpreter does the same when it ends. It tells the idle threads of thread pools to end,
    # and joins all threads but daemons. Joining alone would wait for the idle ones forever.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
    _end_process()
