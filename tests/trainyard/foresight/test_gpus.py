import pytest

from trainyard.foresight.cloud_machines import GPUS, find_gpu
from trainyard.instance_types import MACHINES


def test_every_accelerated_instance_type_has_a_device_of_its_memory():
    for machine in MACHINES.values():
        device = find_gpu(machine)
        if machine.kind != "gpu" or machine.accelerator == "k80":  # no PyTorch of today runs on it
            assert device is None
            continue
        assert device.accelerator == machine.accelerator
        assert 0.9 < device.memory_gib / machine.accelerator_memory_gib <= 1.001, machine.name


@pytest.mark.parametrize(
    ("machine", "device"),
    [
        ("ml.p4d.24xlarge", "A100-40"),
        ("ml.p4de.24xlarge", "A100-80"),
        ("ml.p5.4xlarge", "H100-80"),
        ("ml.p3dn.24xlarge", "V100-32"),
        ("ml.g7e.48xlarge", "RTX-PRO-6000"),
    ],
)
def test_a_machine_has_the_device_of_its_name_and_memory(machine: str, device: str):
    assert find_gpu(MACHINES[machine]) is GPUS[device]


def test_a_whole_node_of_a_device_is_that_of_its_largest_machines():
    """A setting that states no node has the usual one."""
    for gpu in GPUS.values():
        assert min(gpu.bf16_tflops, gpu.memory_gib, gpu.bandwidth_tb_s, gpu.node_gbps) > 0
        machines = [one for one in MACHINES.values() if find_gpu(one) is gpu]
        if machines:
            assert gpu.gpus_per_node == max(one.accelerators for one in machines)
            assert gpu.node_gbps in {one.network_gbps for one in machines}
