"""The table of machines against botocore's instance types, and what others know of the same."""

import ast
import json
from importlib.metadata import distribution
from pathlib import Path

import botocore.session
import pytest

from trainyard.instance_types import MACHINES
from trainyard.validate.rules.images import ACCOUNTS, COMMON_ACCOUNT
from trainyard.validate.rules.network import DRIVER_EFA

SITE = Path(str(distribution("sagemaker-core").locate_file("sagemaker")))


def test_the_machines_are_botocores_instance_types():
    sagemaker = botocore.session.get_session().get_service_model("sagemaker")
    assert set(MACHINES) == set(sagemaker.shape_for("TrainingInstanceType").enum)


def test_each_machine_is_whole():
    for name, machine in MACHINES.items():
        assert machine.name == name
        assert machine.vcpus >= 2 and machine.memory_gib > machine.vcpus
        assert (machine.kind == "cpu") == (machine.accelerators == 0)
        assert (machine.kind == "cpu") == (machine.accelerator_memory_gib == 0)
        assert (machine.kind != "cpu") == name.startswith(("ml.p", "ml.g", "ml.trn"))


@pytest.mark.parametrize(
    ("name", "accelerators", "local_storage_gb", "efa"),
    [
        ("ml.p4d.24xlarge", 8, 8000, True),
        ("ml.p5.4xlarge", 1, 3800, True),
        ("ml.p3.16xlarge", 8, 0, False),
        ("ml.g5.2xlarge", 1, 450, False),
        ("ml.m5.large", 0, 0, False),
    ],
)
def test_some_machines(name: str, accelerators: int, local_storage_gb: int, efa: bool):
    machine = MACHINES[name]
    assert (machine.accelerators, machine.efa) == (accelerators, efa)
    assert machine.local_storage_gb == local_storage_gb


def test_the_drivers_know_efa_as_the_rule_says():
    source = (SITE / "train/container_drivers/common/utils.py").read_text(encoding="utf-8")
    lists = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
    }
    assert set(lists["SM_EFA_NCCL_INSTANCES"]) == DRIVER_EFA
    assert all(MACHINES[name].efa for name in DRIVER_EFA)


def test_the_accounts_of_awss_images_are_the_sdks():
    table = json.loads((SITE / "core/image_uri_config/pytorch.json").read_text(encoding="utf-8"))
    registries = table["training"]["versions"]["2.8.0"]["registries"]
    assert {r: a for r, a in registries.items() if a != COMMON_ACCOUNT} == ACCOUNTS
