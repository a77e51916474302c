"""Rules of complete training runs in real processes: interrupted, repeated, shared by two ranks."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from training.microbatches import depends_on_micro_batch
from training.tools.contract_tests.contract import Fault, NotChecked, Trial, locate_method, rule
from training.tools.contract_tests.packing_rules import build_environment
from training.tools.contract_tests.trial_rank import Case

STEPS, SAVED_STEP = 6, 3
SETTINGS: dict[str, Any] = {
    "strategy": "single",
    "max_steps": STEPS,
    "global_batch": 8,
    "micro_batch": 4,
    "learning_rate": 0.001,
    "warmup_steps": 2,
    "precision": "float32",
    "log_interval": 1,
    "validation_interval": SAVED_STEP,
    "checkpoint_interval": SAVED_STEP,
    "keep_checkpoints": 10,
    "mlflow_tracking_uri": "off",
}
CLOSE = 1e-4
"""Relative difference of float32 losses that counts as rounding: 1.8e-7 was measured over 100 steps
of a transformer; sums in another order in a larger model may differ more."""

STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
    "tensor_parallel": {"strategy": "ddp", "tensor_parallel": 2},
    "pipeline_parallel": {"strategy": "ddp", "pipeline_parallel": 2},
}
"""Name → settings of the strategies tried on two ranks."""

PATIENCE = 300  # seconds that the training runs of one plan may take

Results = Mapping[str, Any]


@rule("trains", "a six-step training run completes", fix="see the line that raised")
def check_training(trial: Trial) -> Iterator[Fault]:
    yield from _check_errors(_run_first(trial))


@rule(
    "deterministic", "another process gives the same losses and weights", needs=("runs", "trains")
)
def check_determinism(trial: Trial) -> Iterator[Fault]:
    first, second = _run_first(trial), _run_second(trial)
    yield from _check_errors(second)
    if not second.get("again") or second["again"]["error"]:
        return
    if difference := _describe_difference(first["whole"], second["again"]):
        yield Fault(
            f"the same training run has another result in another process: {difference}",
            locate_method(trial.shared_workload, "loss"),
            "draw only from torch's generator; keep no state outside of the model",
        )


@rule(
    "resumes",
    "an interrupted and an undisturbed training run give the same losses and weights, bit for bit",
    needs=("runs", "trains", "deterministic"),
)
def check_resume(trial: Trial) -> Iterator[Fault]:
    full_run, resumed_run = _run_first(trial)["whole"], _run_second(trial)["resumed"]
    if difference := _describe_difference(full_run, resumed_run):
        yield Fault(
            f"resumed after step {SAVED_STEP}, it has another result: {difference}",
            locate_method(trial.shared_workload, "model"),
            "keep what a step changes in persistent buffers, and nothing in attributes or modules",
        )


@rule(
    "strategies",
    "every strategy on two ranks gives the losses of one process",
    needs=("runs", "trains"),
)
def check_strategies(trial: Trial) -> Iterator[Fault]:
    names = _list_supported_strategies(trial)
    results = _run_ranks(trial, tuple(names))
    yield from _check_errors(results)
    single_losses = _run_first(trial)["whole"]["losses"]
    for name in names:
        if name not in results or results[name]["error"]:
            continue
        losses = results[name]["losses"]
        step, deviation = max(
            (
                (s, abs(losses[s] - loss) / max(abs(loss), 1e-6))
                for s, loss in single_losses.items()
            ),
            key=lambda entry: entry[1],
        )
        if deviation > CLOSE:
            yield Fault(
                f"{name} on two ranks: the loss of step {step} is {losses[step]:g}, one process's "
                f"{single_losses[step]:g}",
                locate_method(
                    trial.shared_workload, "loss" if name in ("ddp", "fsdp") else "tensor_parallel"
                ),
                "loss and units are sums over samples, whichever rank has them",
            )


def _list_supported_strategies(trial: Trial) -> list[str]:
    """Return the strategies that the workload declares to support."""
    config = trial.spec.config.model_validate(dict(trial.settings))
    # If the training depends on the micro-batch, a split changes it.
    depends_on_batch = depends_on_micro_batch(trial.shared_workload, trial.create_model())
    splits = {"tensor_parallel": (2, 1), "pipeline_parallel": (1, 2)}
    return [
        name
        for name in STRATEGIES
        if name not in splits
        or not (depends_on_batch or trial.spec.refuse_split(config, *splits[name]))
    ]


@cache
def _run_first(trial: Trial) -> Results:
    """Run one process: a complete training run, and one that is interrupted."""
    cases = [
        Case("whole", SETTINGS, str(_create_work_folder(trial) / "whole")),
        Case(
            "interrupted",
            SETTINGS,
            str(_create_work_folder(trial) / "interrupted"),
            stop_at=SAVED_STEP,
        ),
    ]
    return _run_cases(trial, "first", cases, [{}])


@cache
def _run_second(trial: Trial) -> Results:
    """Run another process: continue the interrupted training run, and repeat the complete one."""
    cases = [
        Case("resumed", SETTINGS, str(_create_work_folder(trial) / "interrupted")),
        Case("again", SETTINGS, str(_create_work_folder(trial) / "again")),
    ]
    return _run_cases(trial, "second", cases, [{}], seed=2)


@cache
def _run_ranks(trial: Trial, names: Sequence[str]) -> Results:
    """Train with each strategy in ``names`` on two ranks."""
    cases = [
        Case(
            name,
            SETTINGS | STRATEGIES[name],
            str(_create_work_folder(trial) / name),
            port=_find_free_port(),
        )
        for name in names
    ]
    meeting = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": "2"}
    ranks = [meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    return _run_cases(trial, "ranks", cases, ranks)


def _run_cases(
    trial: Trial, name: str, cases: list[Case], ranks: list[dict[str, str]], *, seed: int = 1
) -> Results:
    """Run the cases; return rank 0's results, or another rank's error if rank 0 raised none."""
    out = _create_work_folder(trial) / f"{name}.json"
    plan = {"workload": trial.name, "settings": dict(trial.settings), "data": str(trial.folder),
            "cases": [asdict(case) for case in cases], "out": str(out)}  # fmt: skip
    path = _create_work_folder(trial) / f"{name}-plan.json"
    path.write_text(json.dumps(plan))
    command = [sys.executable, "-m", "training.tools.contract_tests.trial_rank", str(path)]
    log = _create_work_folder(trial) / f"{name}.log"
    with log.open("w") as output:
        processes = [
            subprocess.Popen(
                command,
                env=build_environment(seed) | variables,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            for variables in ranks
        ]
        try:
            for process in processes:
                process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise NotChecked(f"training took more than {PATIENCE} s; see {log}") from None
        finally:
            # A rank may wait for one that has failed already.
            for process in processes:
                process.kill()
                process.wait()
    paths = [Path(f"{out}{rank}") for rank in range(len(ranks))]
    results = [
        json.loads(result_path.read_text()) for result_path in paths if result_path.is_file()
    ]
    if not results:
        raise NotChecked(f"the process ended without a result: {log.read_text()[-300:]}")
    # A rank that only lost its peer does not tell the cause.
    causes = [result for result in results if any(r.get("where") for r in result.values())]
    own_causes = [
        cause for cause in causes if "DistBackend" not in str(cause) and "gloo" not in str(cause)
    ]
    return (own_causes or causes or results)[0]


def _check_errors(results: Results) -> Iterator[Fault]:
    """Yield a fault for each training run that raised an error."""
    for name, result in results.items():
        if result.get("error"):
            yield Fault(f"{name}: {result['error']}", result["where"], "see the line that raised")


def _describe_difference(first: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Describe the difference in words; empty if there is none."""
    for kind in ("losses", "validation"):
        for step, value in other[kind].items():
            if first[kind][step] != value:
                return f"{kind} of step {step} are {first[kind][step]!r} and {value!r}"
    return "" if first["weights"] == other["weights"] else "the trained weights differ"


def _create_work_folder(trial: Trial) -> Path:
    work = trial.folder.parent / "trainings"
    work.mkdir(exist_ok=True)
    return work


def _find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
