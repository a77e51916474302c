"""A probe's figures are the machine's, and foresight can read them."""

import copy
import json

import pytest
import torch

from training import probe as probing
from training.probe import processor, rate, summary
from trainyard.common.errors import RecipeError
from trainyard.foresight.gpus import GPUS
from trainyard.foresight.question import probed
from trainyard.foresight.setting import Setting

SMALL = {
    "ROWS": (64,),
    "WIDTHS": (32, 64),
    "SIZES": (2**10, 2**16),
}


@pytest.fixture(scope="module")
def found() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(probing, name, {"cpu": value})
        patch.setattr(probing, "SECONDS", 0.001)
        return probing.measured(torch.device("cpu"))


def test_every_price_is_there_for_each_type_and_size(found: dict):
    products = [
        (row["dtype"], row["rows"], row["inner"], row["columns"]) for row in found["matmul"]
    ]
    assert len({*products}) == len(products) == 2 * 1 * 2 * 2
    assert all(0 < row["seconds"] < 1 for row in [*found["matmul"], *found["moved"]])
    assert "all_reduce" not in found, "a rank alone exchanges nothing"


def test_the_slowest_rank_is_the_machine(found: dict):
    slow = copy.deepcopy(found)
    for row in [*slow["matmul"], *slow["moved"]]:
        row["seconds"] *= 3
    one, both = summary([found], 0), summary([found, slow], 0)
    for name in ("bf16_tflops", "matmul_tflops", "bandwidth_tb_s"):
        assert both[name] == pytest.approx(one[name] / 3), name
    assert both["memory_gib"] == pytest.approx(one["memory_gib"] / 2), "ranks share the memory"
    best = max(rate(row) for row in found["matmul"] if row["dtype"] == "bfloat16")
    assert one["bf16_tflops"] == best / 1e12
    assert one["link_gb_s"] == 0


def test_a_ring_sends_what_is_exchanged_less_a_ranks_own_part(found: dict):
    rows = [{"bytes": size, "seconds": 0.5} for size in (10**6, 10**9)]
    ranks = [found | {"all_reduce": rows}] * 4
    assert summary(ranks, 0)["link_gb_s"] == pytest.approx(2 * 3 / 4 * 1.0 / 0.5)


def test_time_is_what_the_process_uses_and_not_what_it_waits(monkeypatch):
    used = iter([0.0, 6.0])
    monkeypatch.setattr(probing.time, "process_time", lambda: next(used))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert probing.used(lambda: None, 5) == 2.0


def test_foresight_reads_what_a_probe_prints(found: dict, tmp_path):
    place = tmp_path / "probe.json"
    place.write_text(json.dumps({"gpu": summary([found, found], 0)}))
    offer = probed(place)
    try:
        assert (offer.usd_hour, offer.machine.gpus) == (0, 2)
        setting = Setting.model_validate({"gpu": "here", "gpus": 2, "layers": 2, "hidden": 64})
        assert setting.device.matmul_tflops > 0
    finally:
        GPUS.pop("here")  # type: ignore[attr-defined]
    place.write_text('{"gpu": {"name": "here"}}')
    with pytest.raises(
        RecipeError, match=r"gpu.accelerator: Field required; give the output of python -m"
    ):
        probed(place)
    assert processor()
