"""examples/kubernetes: manifests of the operators' shapes, whose pods train together."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from steps.shard import job
from tests.conftest import CHECKOUT
from tests.training.worlds import free_port

pytestmark = pytest.mark.long

CONFIG = '{"tokenizer": "bytes", "context_length": 16, "layers": 1, "heads": 2, "dim": 16}'
MANIFESTS = CHECKOUT / "examples/kubernetes"
SHAPES = json.loads(Path(__file__).with_name("kubernetes_shapes.json").read_text())


def read_manifest(name: str) -> dict[str, Any]:
    return yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())


def find_problems(manifest: Mapping[str, Any]) -> list[str]:
    shape = SHAPES["kinds"][manifest["kind"]] | {"$defs": SHAPES["$defs"]}
    return [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in Draft202012Validator(shape).iter_errors(manifest)
    ]


def container(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container that trains."""
    spec = manifest["spec"]
    pods = (
        spec["replicaSpecs"][0] if "replicaSpecs" in spec else spec["pytorchReplicaSpecs"]["Worker"]
    )
    return pods["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("name", ["pytorchjob", "hyperpod"])
def test_the_manifest_has_its_kinds_shape_and_a_misspelt_field_is_named(name):
    manifest = read_manifest(name)
    assert find_problems(manifest) == []
    manifest["spec"]["nprocPerNod"] = manifest["spec"].pop("nprocPerNode")
    container(manifest)["imag"] = "x"
    problems = "\n".join(find_problems(manifest))
    assert "'nprocPerNod' was unexpected" in problems and "'imag' was unexpected" in problems


@pytest.fixture(scope="module")
def channels(tmp_path_factory) -> Path:
    """Return a folder with the channels train and validation: a small text, sharded by our job."""
    folder = tmp_path_factory.mktemp("shards")
    lines = [json.dumps({"text": f"line {n} of a small text, {n * n}"}) for n in range(400)]
    (folder / "raw").mkdir()
    (folder / "raw/a.jsonl").write_text("\n".join(lines))
    command = ["--workload", "language_model", "--workload_config", CONFIG, "--processes", "1"]
    share = ["--validation_share", "0.2", "--test_share", "0.2"]
    job.main([*command, "--input", f"{folder}/raw", "--output", f"{folder}/out", *share])
    return folder / "out"


SMALLER = {"--workload_config": CONFIG, "--max_steps": "4", "--global_batch": "4",
           "--micro_batch": "2", "--checkpoint_interval": "4"}  # fmt: skip


def start_pod(rank: int, port: int, root: Path) -> subprocess.Popen:
    """Start a pod's command with what the operator sets in it
    (kubeflow/training-operator, pkg/controller.v1/pytorch/elastic.go).
    """
    trainer = container(read_manifest("pytorchjob"))
    said = dict(argument.split("=", 1) for argument in trainer["args"][1:])
    arguments = [f"{name}={value}" for name, value in (said | SMALLER).items()]
    operator = {"PET_NNODES": "2:2", "PET_NPROC_PER_NODE": "1", "PET_RDZV_BACKEND": "c10d",
                "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}", "PET_RDZV_ID": "job",
                "PET_MAX_RESTARTS": "3"}  # fmt: skip
    place = {"PYTHONPATH": str(CHECKOUT), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [*trainer["command"], trainer["args"][0], *arguments]
    command += ["--log_interval", "1", "--root", str(root)]
    log = (root / f"pod-{rank}.log").open("w")
    environment = os.environ | operator | place
    return subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=log, stderr=log)


@pytest.mark.slow
def test_two_pods_train_one_model_and_print_what_hyperpod_looks_for(channels, tmp_path):
    (tmp_path / "input/data").mkdir(parents=True)
    for split in ("train", "validation"):
        (tmp_path / "input/data" / split).symlink_to(channels / split)
    port = free_port()
    pods = [start_pod(rank, port, tmp_path) for rank in range(2)]
    statuses = [pod.wait(timeout=280) for pod in pods]
    log = "\n".join((tmp_path / f"pod-{rank}.log").read_text() for rank in range(2))
    assert statuses == [0, 0], log
    described = json.loads((tmp_path / "model/config.json").read_text())
    assert (described["world_size"], described["steps"]) == (2, 4)
    for rule in read_manifest("hyperpod")["spec"]["runPolicy"]["logMonitoringConfiguration"]:
        steps = [re.fullmatch(rule["logPattern"], line) for line in log.splitlines()]
        assert {match[1] for match in steps if match} >= {"1", "2", "3", "4"}
