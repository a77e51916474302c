"""Kubeflow's Training Operator v1: a PyTorchJob, as in AWS's samples for EKS.

With an elastic policy the operator sets PET_RDZV_BACKEND, PET_RDZV_ENDPOINT, PET_RDZV_ID,
PET_NNODES, PET_NPROC_PER_NODE and PET_MAX_RESTARTS in every container
(kubeflow/training-operator, pkg/controller.v1/pytorch/elastic.go). The minimum and the maximum
number of nodes are equal: with fewer the training would go on, slower than was paid for.
"""

from pipelines.kubernetes.kinds import kind
from pipelines.kubernetes.pod import Cluster, Fields, metadata, pod_spec, scraped
from pipelines.kubernetes.training_spec import Training


@kind("pytorchjob")
def export(training: Training, cluster: Cluster) -> list[Fields]:
    """Return one PyTorchJob; all pods are workers."""
    pod = pod_spec(training, cluster, "pytorch", ["torchrun"])
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata(training, cluster),
        "spec": {
            "nprocPerNode": str(training.processes),
            "runPolicy": {"activeDeadlineSeconds": training.seconds, "cleanPodPolicy": "Running"},
            "elasticPolicy": {
                "rdzvBackend": "c10d",
                "minReplicas": training.nodes,
                "maxReplicas": training.nodes,
                "maxRestarts": training.restarts,
            },
            "pytorchReplicaSpecs": {
                "Worker": {
                    "replicas": training.nodes,
                    "restartPolicy": "OnFailure",
                    "template": {**scraped(training), "spec": pod},
                }
            },
        },
    }
    return [job]
