"""A silently disabled EFA is reported, with its fix; settings of AWS's drivers are left alone."""

from pathlib import Path

import pytest

from training.watching.device_speed import findings, instance_type

P4D, SHELF = "ml.p4d.24xlarge", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"
DRIVERS = {"FI_PROVIDER": "efa", "LD_LIBRARY_PATH": f"relative:{SHELF}:"}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Create the files of a correctly configured machine."""
    (tmp_path / "sys/class/infiniband/efa_0").mkdir(parents=True)
    (tmp_path / SHELF[1:]).mkdir(parents=True)
    (tmp_path / SHELF[1:] / "libnccl-net.so").touch()
    return tmp_path


def test_what_awss_drivers_set_on_their_images_fits(machine: Path):
    assert [*findings(P4D, DRIVERS, machine)] == []
    (machine / "etc/ld.so.conf.d").mkdir(parents=True)
    (machine / "etc/ld.so.conf.d/100_ofinccl.conf").write_text(f"{SHELF}\n")
    assert [*findings(P4D, {}, machine)] == []
    assert [*findings(P4D, {"NCCL_NET_PLUGIN": "/mine/libnccl-net.so"}, machine)] == []


@pytest.mark.parametrize("instance", ["", "ml.m5.large", "ml.g4dn.xlarge", "local"])
def test_a_machine_without_efa_has_nothing_to_set(instance: str, tmp_path: Path):
    assert [*findings(instance, {}, tmp_path)] == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"LD_LIBRARY_PATH": ""}, f"put {SHELF} on LD_LIBRARY_PATH"),
        ({"NCCL_NET_PLUGIN": "none"}, "NCCL_NET_PLUGIN is none"),
        ({"NCCL_NET_PLUGIN": "ofi"}, "has no libnccl-net-ofi.so"),
        ({"NCCL_NET": "Socket"}, "NCCL_NET is Socket"),
        ({"FI_PROVIDER": "tcp"}, "FI_PROVIDER is tcp"),
        ({"FI_PROVIDER": "^efa"}, "FI_PROVIDER is ^efa"),
    ],
)
def test_efa_that_is_silently_off_is_named(changed: dict[str, str], said: str, machine: Path):
    [found] = findings(P4D, DRIVERS | changed, machine)
    assert found.startswith("EFA is off") and said in found


def test_a_container_without_device_and_plugin_is_told_both(tmp_path: Path):
    device, plugin = findings(P4D, {}, tmp_path)
    assert "lists no device" in device and "the image has no libnccl-net.so" in plugin


def test_the_instance_type_is_what_sagemaker_says():
    assert instance_type({"SM_CURRENT_INSTANCE_TYPE": P4D}) == P4D
    assert instance_type({"SM_RESOURCE_CONFIG": f'{{"current_instance_type": "{P4D}"}}'}) == P4D
    assert instance_type({}) == instance_type({"SM_RESOURCE_CONFIG": "{}"}) == ""
