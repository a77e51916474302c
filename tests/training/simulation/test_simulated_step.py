"""A simulated step counts the memory that a real one takes."""

import contextlib
import os
from pathlib import Path

import pytest

from tests.training import worlds
from tests.training.torches import since
from training.config import TrainConfig
from training.data.manifest import Field
from training.simulate import configured, simulate
from training.simulation.allocations import peak, timeline
from training.simulation.simulated_step import simulated
from training.strategy_table import SIMULATION_TORCH
from training.workloads import Workload, load
from trainyard.common.errors import TrainingError

pytestmark = since(SIMULATION_TORCH, "the simulation")

MODEL = {"context_length": 64, "layers": 3, "heads": 4, "dim": 64}
PARAMETERS = 256 * 64 + 3 * (4 * 64 * 64 + 3 * 64 * 176 + 2 * 64) + 64
FSDP = {"strategy": "fsdp", "micro_batch": 2}


def config(world: int, **given) -> TrainConfig:
    return configured(world, 2, given)


def workload() -> Workload:
    return load("language_model", MODEL)


def test_states_are_what_their_formulas_say():
    """Rajbhandari et al. 2020 (ZeRO): 4 bytes a weight, 8 of Adam's moments, over the ranks."""
    (alone,) = simulate(config(1, strategy="single"), "language_model", MODEL, 1)
    (shared,) = simulate(config(4, **FSDP), "language_model", MODEL, 4)
    assert alone["peak"]["gradients"] >= 4 * PARAMETERS
    for name, size in (("parameters", 4), ("optimizer", 8)):
        assert alone["peak"][name] == pytest.approx(size * PARAMETERS, rel=0.05)
        assert shared["peak"][name] == pytest.approx(size * PARAMETERS / 4, rel=0.1)


@pytest.mark.sweep
def test_more_ranks_take_less_and_recomputation_keeps_less():
    found = [simulate(config(n, **FSDP), "language_model", MODEL, n)[0] for n in (2, 8)]
    assert found[0]["peak_bytes"] > found[1]["peak_bytes"]
    again = config(2, activation_checkpointing="true", **FSDP)
    (recomputed,) = simulate(again, "language_model", MODEL, 2)
    kept, less = found[0]["peak"]["activations"], recomputed["peak"]["activations"]
    assert less < 0.7 * kept


def test_a_real_step_of_two_ranks_takes_what_the_simulated_one_takes(tmp_path):
    """Runs the same strategy over gloo, with real tensors instead of those without contents."""
    (tmp_path / "model").mkdir()
    processes = worlds.start(tmp_path, 2, target=count_really)
    assert worlds.finish(processes) == [0, 0], (tmp_path / "rank-0.log").read_text()
    for rank in (0, 1):
        real = dict(
            (name, int(size))
            for name, size in map(str.split, (tmp_path / f"peak-{rank}").read_text().splitlines())
        )
        assert peak(timeline(simulated(config(2, **FSDP), workload(), rank, 2))).bytes == real


def count_really(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Run on a real rank: write the peak by category."""
    from training import strategies
    from training.simulation.allocations import Storages
    from training.simulation.simulated_step import run

    os.environ.update(environment)
    storages = Storages()
    with (
        (root / f"rank-{rank}.log").open("w") as log,
        contextlib.redirect_stderr(log),
        strategies.started(config(2, **FSDP), workload()) as strategy,
    ):
        run(strategy, 2, storages, contextlib.nullcontext())
    found = peak(timeline(storages.record)).bytes
    (root / f"peak-{rank}").write_text("".join(f"{n} {size}\n" for n, size in found.items()))


def test_samples_of_any_width_are_refused():
    ragged = workload()
    ragged.packing.fields = {"tokens": Field(dtype="uint8", shape=None)}
    with pytest.raises(TrainingError, match="field tokens is of any width"):
        simulated(config(1, strategy="single"), ragged, 0, 1)


def test_what_touches_memory_itself_is_refused():
    with pytest.raises(TrainingError, match="strategy deepspeed cannot be simulated"):
        simulated(config(2, strategy="deepspeed"), workload(), 0, 2)
