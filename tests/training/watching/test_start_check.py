"""The check on real ranks; the measuring itself on a CPU, since there is no GPU here."""

import json
import logging
import os
import socket
from pathlib import Path
from unittest import mock

import pytest
import torch

from tests.training import worlds
from training.strategies.ranks import Ranks, joined
from training.watching import device_speed, start_check
from training.watching.start_check import Figures, findings
from trainyard.common.errors import TrainingError

CPU = torch.device("cpu")
ALONE = Ranks(0, 0, 1, CPU)
A100 = "NVIDIA A100-SXM4-40GB"


def test_every_device_multiplies_the_same_numbers():
    (rate, digest), (_, again) = (device_speed.matmul(CPU, 64, 3) for _ in range(2))
    assert rate > 0 and digest == again


def test_the_trainings_own_random_numbers_stay(monkeypatch):
    before = torch.get_rng_state()
    device_speed.matmul(CPU, 32, 1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("asked", ["off", "warn", "stop"])
def test_a_machine_of_no_known_type_without_a_gpu_says_nothing(asked, caplog):
    caplog.set_level(logging.INFO)
    start_check.check(asked, ALONE)
    assert not caplog.records


def injected(monkeypatch, *rates: float) -> None:
    """Pretend that the ranks had measured these rates."""
    every = [Figures(n, "algo-1", A100, rate) for n, rate in enumerate(rates)]
    monkeypatch.setattr(Ranks, "gather", lambda self, value: every)


def test_one_line_says_how_it_went(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    injected(monkeypatch, 250e12, 247e12)
    start_check.check("stop", ALONE)
    [line] = caplog.messages
    assert line.startswith("health: 2 GPUs multiply at 247 to 250 TFLOP/s; checked in ")


def test_a_slow_gpu_warns_or_stops(monkeypatch, caplog):
    injected(monkeypatch, 250e12, 90e12, 251e12)
    start_check.check("warn", ALONE)
    [line] = caplog.messages
    assert line.startswith(f"health: rank 1 ({A100} of algo-1) is slow")
    with pytest.raises(TrainingError, match=r"health_check stop: rank 1 .* is slow"):
        start_check.check("stop", ALONE)


def test_a_wrong_product_and_slow_links_are_named():
    wrong = [Figures(n, "algo-1", A100, 250e12, digest=7 + (n == 2)) for n in range(4)]
    assert [one[:6] for one in findings(wrong)] == ["rank 2"]
    slow = [Figures(n, f"algo-{n}", A100, 250e12, within=(n or 0.5) * 1e9) for n in (0, 1, 1, 1)]
    [said] = findings([*slow, Figures(4, "algo-4", A100, 250e12, within=1e9)])
    assert said.startswith("the GPUs of algo-0 exchange slowly: all-reduce at 0.5 GB/s")


def ranks_of_two_machines(given: list, environment: dict[str, str], root: Path, rank: int) -> None:
    """Run ranks 0 and 1 on algo-1, rank 2 on algo-2; write each one's findings to a file."""
    host = f"algo-{rank // 2 + 1}"
    os.environ.update(
        environment, LOCAL_RANK=str(rank % 2), SM_CURRENT_INSTANCE_TYPE="ml.p4d.24xlarge"
    )
    with joined(30) as ranks, mock.patch.object(socket, "gethostname", lambda: host):
        within = start_check.links(ranks, ["algo-1", "algo-1", "algo-2"], payload=4096)
        everywhere = start_check.links(ranks, ["algo-1"] * 3, payload=4096)
        logging.basicConfig(filename=root / f"{rank}.log")
        start_check.check("warn", ranks)
        try:
            start_check.check("stop", ranks)
        except TrainingError as error:
            said = [within, everywhere, str(error)]
            (root / f"{rank}.json").write_text(json.dumps(said))


@pytest.mark.slow
def test_ranks_measure_their_machine_and_all_and_stop_together(tmp_path: Path):
    processes = worlds.start(tmp_path, 3, target=ranks_of_two_machines)
    assert worlds.finish(processes) == [0, 0, 0]
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert [within is None for within, *_ in found] == [False, False, True]  # rank 2 is alone
    assert all(everywhere > 0 for _, everywhere, _ in found)
    assert len({said for *_, said in found}) == 1
    assert "algo-1, algo-2: EFA is off: ml.p4d.24xlarge has it, but" in found[0][-1]
    logs = [(tmp_path / f"{rank}.log").read_text() for rank in range(3)]
    # The device and the plugin, by each of the two checks; and by rank 0 alone.
    assert logs[0].count("EFA is off") == 4 and not logs[1] + logs[2]
