"""Whom the figures accuse: nobody in a healthy job, and always the one that is slow."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from training.health import expected
from training.health.figures import Figures, findings, told
from training.health.finding import Finding

A100, UNKNOWN = "NVIDIA A100-SXM4-40GB", "NVIDIA RTX PRO 4500"
FEW = settings(max_examples=40)
DEVICES = st.sampled_from([A100, "NVIDIA H100 80GB HBM3", "NVIDIA B200", UNKNOWN])


@st.composite
def healthy(draw: st.DrawFn) -> list[Figures]:
    """A job whose GPUs are within 5 % of a level that one shape reaches."""
    device, machines, gpus = draw(DEVICES), draw(st.integers(1, 6)), draw(st.integers(1, 8))
    known = expected.rates(device)
    level = draw(st.floats(0.75, 0.95)) * (known.matmul or 50e12)
    within = draw(st.floats(0.6, 1.0)) * (known.all_reduce or 20e9)
    over = draw(st.floats(0.4, 0.95)) * min(50e9, known.all_reduce or 50e9)
    return [
        Figures(
            rank=rank,
            host=f"algo-{rank // gpus + 1}",
            local_rank=rank % gpus,
            instance="ml.p4d.24xlarge",
            device=device,
            matmul=level * draw(st.floats(0.95, 1.05)),
            digest=7,
            within=within * draw(st.floats(0.95, 1.05)) if gpus > 1 else None,
            over=over if machines > 1 else None,
            gpus=gpus,
        )
        for rank in range(machines * gpus)
    ]


def cases(every: list[Figures], rank: int, **changed) -> list[Figures]:
    return [replace(one, **changed) if one.rank == rank else one for one in every]


@FEW
@given(healthy())
def test_a_healthy_job_has_no_alarm(every: list[Figures]):
    assert findings(every) == []
    assert f"{len(every)} GPUs multiply at" in told(every)


@FEW
@given(healthy(), st.data())
def test_the_slow_gpu_is_always_named_and_no_other(every: list[Figures], data: st.DataObject):
    """Also alone, where its kind is known."""
    assume(len(every) > 1 or every[0].device != UNKNOWN)
    slow = data.draw(st.integers(0, len(every) - 1))
    usual = min(one.matmul for one in every)
    least = usual if len(every) > 1 else expected.rates(every[0].device).matmul
    rate = least * data.draw(st.floats(0.01, 0.69 if len(every) == 1 else 0.8))
    [found] = findings(cases(every, slow, matmul=rate))
    assert found.what.startswith(f"{every[slow].name} is slow") and "replace" in found.fix
    assert found.sure


def test_a_job_that_is_slow_as_a_whole_is_named_where_its_kind_is_known():
    every = [Figures(n, "algo-1", n, device=A100, matmul=120e12) for n in range(8)]
    assert [found.what.partition(" (")[0] for found in findings(every)] == [
        f"rank {n}" for n in range(8)
    ]
    assert findings([replace(one, device=UNKNOWN) for one in every]) == []
    assert str(findings(every)[5]) == (
        "rank 5 (NVIDIA A100-SXM4-40GB, local rank 5 on algo-1) is slow: it multiplies at 120 "
        "TFLOP/s, the median of 8 such GPUs here is 120 and the best measured of one is 271.2; "
        "replace the instance: start the job again, a restart inside the job comes back to this "
        "machine"
    )


@FEW
@given(healthy(), st.data())
def test_a_gpu_that_computes_wrong_is_named(every: list[Figures], data: st.DataObject):
    bad = data.draw(st.integers(0, len(every) - 1))
    changed = {"wrong": data.draw(st.integers(0, 9)), "digest": data.draw(st.integers())}
    assume(changed["wrong"] or (changed["digest"] != 7 and len(every) > 2))
    [found] = findings(cases(every, bad, **changed))
    assert found.what.startswith(f"{every[bad].name} computes wrong")


@FEW
@given(healthy(), st.data())
def test_a_machine_whose_gpus_exchange_slowly_is_named(every, data: st.DataObject):
    assume(every[0].within is not None)
    hosts = sorted({one.host for one in every})
    assume(len(hosts) > 1 or every[0].device in (A100, "NVIDIA H100 80GB HBM3"))
    bad = data.draw(st.sampled_from(hosts))
    rate = min(one.within for one in every) * data.draw(st.floats(0.01, 0.45))
    slow = [replace(one, within=rate) if one.host == bad else one for one in every]
    [found] = findings(slow)
    assert found.what.startswith(f"the GPUs of {bad} ") and "exchange slowly" in found.what


@FEW
@given(healthy())
def test_a_fabric_that_is_tcp_is_named(every: list[Figures]):
    assume(every[0].over is not None)
    [found] = findings([replace(one, over=2e9) for one in every])
    assert "reaches 2 GB/s, and EFA of ml.p4d.24xlarge carries 50" in found.what
    assert findings([replace(one, over=2e9, instance="ml.g5.xlarge") for one in every]) == []


@pytest.mark.parametrize(("machines", "said"), [(1, 0), (2, 1), (20, 1)])
def test_settings_that_all_machines_have_are_said_once(machines: int, said: int):
    """And not at all of one machine, whose GPUs need no fabric."""
    off = Finding("EFA is off", "put it on", sure=False)
    every = [Figures(n, f"algo-{n + 1}", settings=(off,)) for n in range(machines)]
    found = findings(every)
    assert len(found) == said
    instance = [replace(one, instance="ml.p4d.24xlarge") for one in every]
    assert told(instance) == ("EFA's settings do not fit ml.p4d.24xlarge" if said else "")
    if machines == 20:
        assert found[0].what.endswith("algo-8 and 12 more: EFA is off") and not found[0].sure


def test_on_a_cpu_nothing_is_told():
    assert told([Figures(0, "algo-1"), Figures(1, "algo-2")]) == ""
    assert findings([Figures(0, "algo-1", instance="ml.p4d.24xlarge")]) == []
