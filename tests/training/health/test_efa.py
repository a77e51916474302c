"""EFA that is silently off is named, with its fix; what AWS's drivers set is left in peace."""

from pathlib import Path

import pytest

from training.health import expected
from training.health.efa import Files, findings, instance_type, look

P4D, G5, P5EN = "ml.p4d.24xlarge", "ml.g5.48xlarge", "ml.p5en.48xlarge"
DRIVERS = {"FI_PROVIDER": "efa", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_PROTO": "simple"}
RDMA = DRIVERS | {"FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"}
GOOD = Files(("rdmap16s27", "rdmap32s27"), ("eth0", "lo"), ("libnccl-net.so",))


def test_what_awss_drivers_set_on_their_images_fits():
    assert findings(P4D, RDMA, GOOD) == findings(G5, DRIVERS, GOOD) == []
    assert findings(P5EN, {"FI_PROVIDER": "efa"}, GOOD) == []
    for instance in expected.EFA:
        rdma = instance.startswith(expected.RDMA)
        assert findings(instance, RDMA if rdma else DRIVERS, GOOD) == []


@pytest.mark.parametrize("instance", ["", "ml.m5.large", "ml.g4dn.xlarge", "local"])
def test_a_machine_without_efa_has_nothing_to_set(instance: str):
    assert findings(instance, {}, Files((), (), ())) == []


def test_a_provider_that_the_machine_has_not_is_named():
    [found] = findings("ml.g5.xlarge", {"FI_PROVIDER": "efa"}, GOOD)
    assert "ml.g5.xlarge is not known to have EFA" in found.what and not found.sure


OFF = [
    ({}, Files((), ("eth0",), ("libnccl-net.so",)), "/sys/class/infiniband lists no device"),
    ({}, Files(("efa_0",), ("eth0",), ()), "the image has no libnccl-net.so"),
    ({}, Files(("efa_0",), ("eth0",), (), ("/opt/aws-ofi-nccl/lib",)), "in /opt/aws-ofi-nccl/lib"),
    ({"NCCL_NET_PLUGIN": "none"}, GOOD, "NCCL_NET_PLUGIN is none"),
    ({"NCCL_NET_PLUGIN": "ofi"}, GOOD, "has no libnccl-net-ofi.so"),
    ({"NCCL_NET": "Socket"}, GOOD, "NCCL_NET is Socket"),
    ({"FI_PROVIDER": "tcp"}, GOOD, "FI_PROVIDER is tcp"),
    ({"FI_PROVIDER": "^efa"}, GOOD, "FI_PROVIDER is ^efa"),
]


@pytest.mark.parametrize(("changed", "files", "said"), OFF)
def test_efa_that_is_silently_off_is_named(changed: dict[str, str], files: Files, said: str):
    [found] = findings(P4D, RDMA | changed, files)
    assert found.what.startswith("EFA is off") and said in found.what and found.sure and found.fix


OTHERS = [
    (P4D, {"FI_EFA_USE_DEVICE_RDMA": "0"}, "copies through the host's", False),
    (P4D, {"FI_EFA_USE_DEVICE_RDMA": ""}, "before 1.18", False),
    (G5, {}, "the EFA of ml.g5.48xlarge has no RDMA", True),
    (P4D, {"NCCL_SOCKET_IFNAME": "ens"}, "the machine has eth0, lo: NCCL cannot start", True),
    (P4D, {"NCCL_SOCKET_IFNAME": "=eth"}, "NCCL cannot start", True),
    (P4D, {"NCCL_SOCKET_IFNAME": "lo"}, "do not meet over lo", True),
    (P4D, {"NCCL_PROTO": "LL,LL128,Simple"}, "LL128 needs data in order", False),
]


@pytest.mark.parametrize(("instance", "changed", "said", "sure"), OTHERS)
def test_settings_that_do_not_fit_the_type(instance, changed, said, sure):
    [found] = findings(instance, RDMA | changed, GOOD)
    assert said in found.what and found.sure == sure


@pytest.mark.parametrize("asked", ["e", "eth", "eth0,ens5", "=eth0", "^docker", "^lo,docker"])
def test_interfaces_are_named_as_nccl_reads_them(asked: str):
    assert findings(P4D, RDMA | {"NCCL_SOCKET_IFNAME": asked}, GOOD) == []


def test_a_provider_that_is_not_set_may_be_right():
    [found] = findings(P5EN, {"NCCL_NET_PLUGIN": "/mine/libnccl-net.so"}, GOOD)
    assert "FI_PROVIDER is not set on ml.p5en.48xlarge" in found.what and not found.sure


def test_files_are_looked_for_where_the_loader_looks(tmp_path: Path):
    for name in ("sys/class/infiniband/efa_0", "sys/class/net/eth0"):
        (tmp_path / name).mkdir(parents=True)
    shelf = tmp_path / "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"
    shelf.mkdir(parents=True)
    (shelf / "libnccl-net.so").touch()
    unused = ("/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",)
    assert look({}, tmp_path) == Files(("efa_0",), ("eth0",), (), unused)
    by_path = look({"LD_LIBRARY_PATH": f"relative:{unused[0]}:"}, tmp_path)
    assert by_path.plugins == ("libnccl-net.so",)
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d/100_ofinccl.conf").write_text(f"{unused[0]}\n")
    assert look({}, tmp_path).plugins == ("libnccl-net.so",)
    assert look({}, tmp_path / "empty") == Files((), (), ())


def test_the_instance_type_is_what_sagemaker_says():
    assert instance_type({"SM_CURRENT_INSTANCE_TYPE": P4D}) == P4D
    assert instance_type({"SM_RESOURCE_CONFIG": f'{{"current_instance_type": "{G5}"}}'}) == G5
    assert instance_type({}) == instance_type({"SM_RESOURCE_CONFIG": "{}"}) == ""
