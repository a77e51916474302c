"""Kubeflow Trainer v2: a TrainJob, and the TrainingRuntime that it refers to.

A TrainJob itself can patch a runtime's pods but not give them init containers
(``runtimePatches``: "Runtime must have this container"), so the runtime is exported beside it. The
operator's torch policy sets PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and
PET_MASTER_PORT in the container ``node`` (kubeflow/trainer, pkg/runtime/framework/plugins/torch),
and refuses jobs that set one of these.
"""

from pipelines.kubernetes.kinds import kind
from pipelines.kubernetes.pod import Cluster, Fields, metadata, pod_spec, scraped
from pipelines.kubernetes.training_spec import Training

GROUP = "trainer.kubeflow.org"
VERSION = f"{GROUP}/v1alpha1"
RESERVED = (
    *("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"),
    *("PET_MASTER_ADDR", "PET_MASTER_PORT"),
)
"""Variables that the operator sets."""


@kind("trainjob")
def export(training: Training, cluster: Cluster) -> list[Fields]:
    """Return the TrainingRuntime, then the TrainJob."""
    job = {
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": metadata(training, cluster),
        "spec": {
            "runtimeRef": {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": training.name},
            "activeDeadlineSeconds": training.seconds,
            "trainer": {"numNodes": training.nodes, "numProcPerNode": training.processes},
        },
    }
    return [_runtime(training, cluster), job]


def _runtime(training: Training, cluster: Cluster) -> Fields:
    pod = pod_spec(training, cluster, "node", ["torchrun"])
    trainer = pod["containers"][0]
    trainer["env"] = [each for each in trainer["env"] if each["name"] not in RESERVED]
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": step},
            "spec": {
                "template": {**scraped(training), "spec": {"restartPolicy": "OnFailure", **pod}}
            },
        },
    }
    return {
        "apiVersion": VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata(training, cluster),
        "spec": {
            "mlPolicy": {"numNodes": training.nodes, "torch": {}},
            "template": {"spec": {"replicatedJobs": [node]}},
        },
    }
