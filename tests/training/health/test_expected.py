"""The table beside the facts that stand elsewhere."""

import pytest

from training.devices import peak_of
from training.health import expected
from trainyard.foresight.gpus import GPUS, Gpu
from trainyard.machines import MACHINES

NAMES = ["NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200"]


def test_fabric_is_that_of_the_machines_that_have_gpus_and_efa():
    gpus = [one for one in MACHINES.values() if one.kind == "gpu" and one.efa]
    assert expected.EFA == {one.name: one.network_gbps for one in gpus}
    assert expected.fabric("ml.p4d.24xlarge") == 50e9
    assert expected.fabric("ml.m5.large") is expected.fabric("") is None


@pytest.mark.parametrize("name", NAMES)
def test_what_was_measured_is_less_than_the_peak_and_not_much_less(name: str):
    assert 0.7 < expected.rates(name).matmul / peak_of(name) < 0.9


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS.values() if gpu.driver], ids=lambda g: g.name)
def test_the_devices_are_those_that_foresight_counts_with(gpu: Gpu):
    assert peak_of(gpu.driver) == gpu.bf16_tflops * 1e12
    measured = expected.rates(gpu.driver).matmul
    if "matmul_tflops" not in gpu.guessed:
        assert measured == gpu.matmul_tflops * 1e12


def test_a_gpu_on_pcie_is_not_held_against_one_with_nvlink():
    for name in ("NVIDIA A100-PCIE-40GB", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A10G"):
        assert expected.rates(name) == expected.Rates(None, None)
