"""The pod that trains: the part that all kinds of manifests have in common.

Init containers fetch what SageMaker would: the channels from S3 and the packages. Then
torchrun starts the same script with the same arguments as AWS's driver does; the operator gives
the number of nodes and the first one's address in PET_* variables. Checkpoints and model lie
on a claim, so a restarted pod goes on where the lost one was.
"""

from dataclasses import dataclass
from typing import Any

from pipelines.kubernetes.training_spec import DATA, ROOT, Training
from trainyard.common.errors import DefinitionError

CODE = f"{DATA}/code"
PACKAGES = f"{ROOT}/packages"
KEPT = ("checkpoints", "model")
"""Folders below /opt/ml that outlive the pod."""
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""Label of a node on EKS: EC2's name of the type; HyperPod's nodes have SageMaker's."""
GRACE_SECONDS = 120
"""Seconds between SIGTERM and SIGKILL, as on SageMaker; PET_SHUTDOWN_TIMEOUT is shorter."""

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Settings that only the people who run the cluster know."""

    claim: str
    """PersistentVolumeClaim that all pods may write (ReadWriteMany), such as FSx for Lustre."""

    namespace: str = "default"
    service_account: str | None = None
    """Service account whose role may read the channels' buckets; None: the namespace's default."""

    efa: int | None = None
    """EFA interfaces that a pod asks for; None: not given."""


def pod_spec(training: Training, cluster: Cluster, container: str, command: list[str]) -> Fields:
    """Return a PodSpec.

    Args:
        container: the container's name that the operator looks for.
        command: the command that starts the ranks.

    Raises:
        DefinitionError: the machine has EFA, and the number of interfaces is not given.
    """
    fetched = [
        _init(training, f"fetch-{name.replace('_', '-').lower()}", _fetch(uri, f"{DATA}/{name}"))
        for name, uri in training.channels.items()
    ]
    installed = [_init(training, "packages", _install(training.requirements))]
    account = cluster.service_account
    return {
        **({"serviceAccountName": account} if account else {}),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": {INSTANCE_TYPE: training.machine.name.removeprefix("ml.")},
        "initContainers": fetched + (installed if training.requirements else []),
        "containers": [_trainer(training, cluster, container, command)],
        "volumes": _volumes(training, cluster),
    }


def _trainer(training: Training, cluster: Cluster, name: str, command: list[str]) -> Fields:
    kept = [
        {"name": "kept", "mountPath": f"{ROOT}/{folder}", "subPath": f"{training.name}/{folder}"}
        for folder in KEPT
    ]
    environment = {**training.environment, "PYTHONPATH": f"{CODE}:{PACKAGES}"}
    return {
        "name": name,
        "image": training.image,
        "command": command,
        "args": [training.script, *training.arguments],
        "workingDir": CODE,
        "env": [{"name": key, "value": value} for key, value in sorted(environment.items())]
        + _served(training),
        **_ports(training),
        "resources": _resources(training, cluster),
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [_mount(), {"name": "memory", "mountPath": "/dev/shm"}, *kept],  # noqa: S108
    }


def scraped(training: Training) -> Fields:
    """Return the pod template's annotations by which Prometheus finds /metrics, where
    it is served.
    """
    if not training.metrics_port:
        return {}
    said = {"scrape": "true", "port": str(training.metrics_port), "path": "/metrics"}
    annotations = {f"prometheus.io/{name}": value for name, value in said.items()}
    return {"metadata": {"annotations": annotations}}


def _served(training: Training) -> list[Fields]:
    """Return variables to serve /metrics on the pod's own address, which only the cluster's network
    reaches.
    """
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    found = [{"name": "TRAINYARD_METRICS_HOST", "valueFrom": address}]
    return found if training.metrics_port else []


def _ports(training: Training) -> Fields:
    port = {"name": "metrics", "containerPort": training.metrics_port}
    return {"ports": [port]} if training.metrics_port else {}


def _init(training: Training, name: str, command: list[str]) -> Fields:
    return {
        "name": name,
        "image": training.image,  # AWS's images have the aws command and pip
        "command": command,
        "env": [{"name": "AWS_REGION", "value": training.region}],
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [_mount()],
    }


def _fetch(uri: str, folder: str) -> list[str]:
    return ["aws", "s3", "sync", "--only-show-errors", uri, folder]


def _install(requirements: str | None) -> list[str]:
    options = ["--quiet", "--disable-pip-version-check", "--target", PACKAGES]
    return ["python3", "-m", "pip", "install", *options, "-r", f"{CODE}/{requirements}"]


def _resources(training: Training, cluster: Cluster) -> Fields:
    """Return GPUs and EFA interfaces: the only way in Kubernetes to give a whole
    node to one pod.
    """
    machine, wanted = training.machine, {}
    if machine.accelerators:
        wanted["nvidia.com/gpu"] = machine.accelerators
    if machine.efa and training.nodes > 1 and cluster.efa is None:
        raise DefinitionError(
            f"train.instance_type: {machine.name} has EFA, and without it collectives fall back to "
            "TCP silently; give with --efa the interfaces of a pod (ml.p4d.24xlarge has 4, "
            "ml.p5.48xlarge 32), or --efa 0"
        )
    if cluster.efa:
        wanted["vpc.amazonaws.com/efa"] = cluster.efa
    return {"limits": wanted, "requests": dict(wanted)} if wanted else {}


def _mount() -> Fields:
    return {"name": "work", "mountPath": ROOT}


def _volumes(training: Training, cluster: Cluster) -> list[Fields]:
    return [
        {"name": "work", "emptyDir": {"sizeLimit": f"{training.volume_gb}G"}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "kept", "persistentVolumeClaim": {"claimName": cluster.claim}},
    ]


def metadata(training: Training, cluster: Cluster) -> Fields:
    """Return the manifest's name, and notes on what it was created from."""
    return {
        "name": training.name,
        "namespace": cluster.namespace,
        "labels": {"app.kubernetes.io/name": training.name},
        "annotations": {
            "trainyard/definition-sha256": training.definition_sha256,
            "trainyard/code": training.channels["code"],
        },
    }
