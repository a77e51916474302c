"""Tests that all our manifests match their kind's schema, and that errors in them are named."""

import copy
from pathlib import Path

import pytest

from pipelines.definition import from_recipe
from pipelines.export import kinds, problems
from pipelines.kubernetes.kinds import KINDS
from pipelines.kubernetes.pod import Cluster
from pipelines.kubernetes.training_spec import Training, read_training

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.fixture(scope="module")
def training() -> Training:
    data = {name: f"s3://b/{name}" for name in ("train", "validation")}
    return read_training(from_recipe(RECIPES / "prod.yaml"), data)


@pytest.fixture
def manifests(training) -> dict[str, dict]:
    """Kind → manifest, of all that are exported."""
    cluster = Cluster(claim="fsx", service_account="trainer", efa=4)
    every = [document for export in KINDS.values() for document in export(training, cluster)]
    return copy.deepcopy({document["kind"]: document for document in every})


def test_all_that_is_exported_is_right(manifests):
    assert set(manifests) == set(kinds())
    assert {kind: list(problems(manifest)) for kind, manifest in manifests.items()} == {
        kind: [] for kind in manifests
    }


@pytest.mark.parametrize(
    ("kind", "path", "name", "value", "said"),
    [
        ("TrainJob", "spec.trainer", "numNode", 2, "'numNode' was unexpected"),
        ("TrainJob", "spec.trainer", "numNodes", "x", "spec.trainer.numNodes: 'x' is not"),
        ("TrainJob", "spec", "runtimeRef", None, "spec.runtimeRef: None is not"),
        ("TrainingRuntime", "spec.mlPolicy", "numNode", 2, "'numNode' was unexpected"),
        (
            *("TrainingRuntime", "spec.template.spec.replicatedJobs.0.template.spec.template.spec"),
            *("initContainer", [], "'initContainer' was unexpected"),
        ),
        ("PyTorchJob", "spec", "nprocPerNode", 8, "spec.nprocPerNode: 8 is not of type 'string'"),
        ("PyTorchJob", "spec.elasticPolicy", "minReplica", 2, "'minReplica' was unexpected"),
        (
            *("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.template.spec.containers.0"),
            *("imag", "x", "'imag' was unexpected"),
        ),
        ("HyperPodPyTorchJob", "spec.runPolicy", "jobMaxRetries", 1, "was unexpected"),
        (
            *("HyperPodPyTorchJob", "spec.runPolicy.logMonitoringConfiguration.0"),
            *("expectedStartCutOffInSeconds", "soon", "'soon' is not of type 'integer'"),
        ),
        ("HyperPodPyTorchJob", "", "kind", "HyperPodJob", "'HyperPodJob' is unknown"),
    ],
)
def test_a_fault_is_named_with_its_place(kind, path, name, value, said, manifests):
    place = manifests[kind]
    for key in filter(None, path.split(".")):
        place = place[int(key) if key.isdecimal() else key]
    place[name] = value
    found = list(problems(manifests[kind]))
    assert any(said in problem for problem in found), found
