"""A probe's figures are those of the machine, and foresight reads them."""

import copy
import json

import pytest
import torch

from training.probing import clock, pages, rank
from training.probing.summary import processor, rate, summary
from trainyard.common.errors import RecipeError
from trainyard.foresight import probe
from trainyard.foresight.gpus import GPUS
from trainyard.foresight.setting import Setting

SMALL = {
    "ROWS": (64,),
    "WIDTHS": (32, 64),
    "SIZES": (2**10, 2**16),
    "HEADS": ((32, 16),),
    "WEIGHTS": 2**10,
}


@pytest.fixture(scope="module")
def found() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(rank, name, {"cpu": value})
        patch.setattr(clock, "SECONDS", 0.001)
        return rank.measured(torch.device("cpu"))


def test_every_price_is_there_for_each_type_and_size(found: dict):
    products = [
        (row["dtype"], row["rows"], row["inner"], row["columns"]) for row in found["matmul"]
    ]
    assert len({*products}) == len(products) == 2 * 1 * 2 * 2
    rows = [*found["matmul"], *found["attention"], *found["moved"], found["optimizer"]]
    assert all(0 < row["seconds"] < 1 for row in rows)
    assert 0 < found["call"]["forward_seconds"] < found["call"]["trained_seconds"]
    assert "collective" not in found, "a rank alone exchanges nothing"


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
    rows = [{"kind": "all_reduce", "bytes": size, "seconds": 0.5} for size in (10**6, 10**9)]
    rows.append({"kind": "all_gather", "bytes": 10**10, "seconds": 0.5})
    ranks = [found | {"collective": rows}] * 4
    assert summary(ranks, 0)["link_gb_s"] == pytest.approx(2 * 3 / 4 * 1.0 / 0.5)


def test_time_is_what_the_process_uses_and_not_what_it_waits(monkeypatch):
    used = iter([0.0, 6.0])
    monkeypatch.setattr(clock.time, "process_time", lambda: next(used))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert clock.used(lambda: None, 5) == 2.0


def test_a_block_that_malloc_never_keeps_is_fresh_in_each_step():
    large, small = pages.MAPPED, 2**12
    assert large <= pages.fresh([], [large, -1]) < large + 2**20
    assert pages.fresh([2**20], [small, -2, small, -3]) < 2**20


def test_foresight_reads_what_a_probe_prints(found: dict, tmp_path):
    place = tmp_path / "probe.json"
    place.write_text(json.dumps({"gpu": summary([found, found], 0)}))
    offer = probe.offer(place)
    try:
        assert (offer.usd_hour, offer.machine.gpus) == (0, 2)
        setting = Setting.model_validate({"gpu": "here", "gpus": 2, "layers": 2, "hidden": 64})
        assert setting.device.matmul_tflops > 0
    finally:
        GPUS.pop("here")  # type: ignore[attr-defined]
    place.write_text('{"gpu": {"name": "here"}}')
    with pytest.raises(RecipeError, match=r"gpu.accelerator: Field required; give what python -m"):
        probe.offer(place)
    assert processor()
