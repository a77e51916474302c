"""SageMaker HyperPod on EKS: a HyperPodPyTorchJob.

``hyperpodrun`` is torchrun under HyperPod's elastic agent (PyPI: hyperpod-elastic-agent), which the
image must hold. The operator restarts ranks and jobs, and looks for hangs in the log. Its form,
the affinity and the figures of the restart policy are those of AWS's samples
(aws-samples/awsome-distributed-training, llama3_1_8b-fsdp-hpto.yaml).
"""

from pipelines.kubernetes.kinds import kind
from pipelines.kubernetes.pod import INSTANCE_TYPE, Cluster, Fields, metadata, pod_spec, scraped
from pipelines.kubernetes.training_spec import Training

START_SECONDS = 1800
"""Seconds until the first line of metrics: packages, data, the model, compilation."""
SILENT_SECONDS = 600
"""Seconds between two lines of metrics, a validation or a checkpoint included."""
WINDOW_SECONDS = 21_600
"""Seconds of the window in which restarts are counted."""
HEALTHY = {
    "key": "sagemaker.amazonaws.com/node-health-status",
    "operator": "In",
    "values": ["Schedulable"],
}


@kind("hyperpod")
def export(training: Training, cluster: Cluster) -> list[Fields]:
    """Return one HyperPodPyTorchJob."""
    size = [f"--nnodes={training.nodes}", f"--nproc_per_node={training.processes}"]
    pod = pod_spec(training, cluster, "pytorch", ["hyperpodrun", "--tee=3", *size])
    terms = [{"matchExpressions": [HEALTHY]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["nodeSelector"] = {INSTANCE_TYPE: training.machine.name}
    pod["affinity"] = {"nodeAffinity": required}
    job = {
        "apiVersion": "sagemaker.amazonaws.com/v1",
        "kind": "HyperPodPyTorchJob",
        "metadata": metadata(training, cluster),
        "spec": {
            "nprocPerNode": str(training.processes),
            "runPolicy": _run_policy(training),
            "replicaSpecs": [
                {
                    "name": "pods",
                    "replicas": training.nodes,
                    "template": {**scraped(training), "spec": pod},
                }
            ],
        },
    }
    return [job]


def _run_policy(training: Training) -> Fields:
    """Return ``training.restarts`` restarts of the ranks, then one of the whole job, within six
    hours.
    """
    return {
        "activeDeadlineSeconds": training.seconds,
        "cleanPodPolicy": "All",
        "jobMaxRetryCount": max(1, training.restarts),
        "restartPolicy": {
            "numRestartBeforeFullJobRestart": training.restarts,
            "evalPeriodSeconds": WINDOW_SECONDS,
            "maxFullJobRestarts": 1,
        },
        **({"logMonitoringConfiguration": _hangs(training.pattern)} if training.pattern else {}),
    }


def _hangs(pattern: str) -> list[Fields]:
    """Return the log patterns by which the operator decides that the job hangs."""
    return [
        {
            "name": "JobStart",
            "logPattern": pattern,
            "expectedStartCutOffInSeconds": START_SECONDS,
        },
        {
            "name": "JobHangingDetection",
            "logPattern": pattern,
            "expectedRecurringFrequencyInSeconds": SILENT_SECONDS,
        },
    ]
