"""Whether NCCL's traffic between machines goes over EFA, by settings and files alone.

Where anything is missing NCCL takes TCP without a word, and a training is several times slower.
What AWS sets, and when: sagemaker/train/container_drivers (SDK 3.27) torchrun_driver.py and
mpi_utils.py. What is still needed: aws-samples/awsome-distributed-training, efa-cheatsheet.md;
libfabric's fi_efa(7); aws-ofi-nccl's platform-aws.c, which chooses provider and protocol where
nothing is said; NCCL's user guide, env.html.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from training.health import expected
from training.health.finding import Finding

IMAGE = "use one of AWS's training images, which have it"
PLUGINS = ("/opt/amazon/ofi-nccl", "/opt/aws-ofi-nccl")
"""Where EFA's installer and AWS's images put aws-ofi-nccl."""


@dataclass(frozen=True, slots=True)
class Files:
    """What is on a machine.

    Attributes:
        devices: those of the RDMA subsystem, of which EFA's are.
        interfaces: network interfaces.
        plugins: libnccl-net*.so where the loader looks; their names.
        unused: folders that have such a file, where it does not look.
    """

    devices: tuple[str, ...]
    interfaces: tuple[str, ...]
    plugins: tuple[str, ...]
    unused: tuple[str, ...] = ()


def instance_type(environment: Mapping[str, str] = os.environ) -> str:
    """``ml.p4d.24xlarge``, as SageMaker's drivers or its resource configuration say; else empty."""
    if known := environment.get("SM_CURRENT_INSTANCE_TYPE"):
        return known
    return json.loads(environment.get("SM_RESOURCE_CONFIG") or "{}").get(
        "current_instance_type", ""
    )


def look(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Files:
    """This machine's files; the loader's folders as ld.so(8) has them."""
    listed = environment.get("LD_LIBRARY_PATH", "").split(":")
    for file in sorted(root.glob("etc/ld.so.conf.d/*.conf")):
        listed += file.read_text(encoding="utf-8", errors="replace").split()
    usual = ["/lib", "/usr/lib", "/usr/local/lib", "/lib64", "/usr/lib64"]
    usual += [f"{folder}/x86_64-linux-gnu" for folder in usual[:2]]
    searched = [folder for folder in (*listed, *usual) if folder.startswith("/")]
    found = [name for folder in searched for name in _plugins(root / folder.lstrip("/"))]
    shelves = [path.parent for place in PLUGINS for path in _below(root / place.lstrip("/"))]
    return Files(
        devices=_names(root / "sys/class/infiniband"),
        interfaces=_names(root / "sys/class/net"),
        plugins=tuple(dict.fromkeys(found)),
        unused=tuple(dict.fromkeys(f"/{shelf.relative_to(root)}" for shelf in shelves)),
    )


def findings(instance: str, environment: Mapping[str, str], files: Files) -> list[Finding]:
    """What keeps the traffic of several machines of this type off EFA, or slows it there."""
    if instance not in expected.EFA:
        return [*_without_efa(instance, environment)]
    return [one for rule in RULES for one in rule(instance, environment, files)]


def _without_efa(instance: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    if instance and environment.get("FI_PROVIDER") == "efa" and instance.startswith("ml."):
        yield Finding(
            f"FI_PROVIDER is efa, and {instance} is not known to have EFA",
            "take it out of the job's environment, or use an instance type with EFA",
            sure=False,
        )


def _device(instance: str, environment: Mapping[str, str], files: Files) -> Iterator[Finding]:
    if not files.devices:
        yield Finding(
            f"EFA is off: {instance} has it, but /sys/class/infiniband lists no device here, so "
            "NCCL goes over TCP",
            "on Kubernetes and HyperPod ask for vpc.amazonaws.com/efa; on SageMaker restart the "
            "job for another machine",
        )


def _plugin(instance: str, environment: Mapping[str, str], files: Files) -> Iterator[Finding]:
    wanted = environment.get("NCCL_NET_PLUGIN", "")
    if wanted.startswith("/"):
        return  # a file of its own, which NCCL opens by its path
    if wanted == "none":
        yield Finding(
            "EFA is off: NCCL_NET_PLUGIN is none, so NCCL goes over TCP",
            "take it out of the job's environment",
        )
        return
    name = f"libnccl-net-{wanted}.so" if wanted else "libnccl-net.so"
    if {name, wanted} & {*files.plugins}:
        return
    if files.unused:
        yield Finding(
            f"EFA is off: {name} of aws-ofi-nccl is in {files.unused[0]}, where the loader does "
            "not look, so NCCL goes over TCP",
            f"put {files.unused[0]} on LD_LIBRARY_PATH",
        )
    else:
        yield Finding(
            f"EFA is off: the image has no {name}, which is NCCL's way to EFA (aws-ofi-nccl), so "
            "NCCL goes over TCP",
            IMAGE,
        )


def _provider(instance: str, environment: Mapping[str, str], files: Files) -> Iterator[Finding]:
    network = environment.get("NCCL_NET", "")
    if network.lower() == "socket":
        yield Finding(
            f"EFA is off: NCCL_NET is {network}, so NCCL goes over TCP",
            "take it out of the job's environment",
        )
    provider = environment.get("FI_PROVIDER")
    if provider is None:
        yield Finding(
            f"FI_PROVIDER is not set on {instance}: aws-ofi-nccl up to 1.5 may take TCP",
            "set FI_PROVIDER=efa in the job's environment; AWS's drivers do so for the types that "
            "they know",
            sure=False,
        )
    elif ("efa" in provider.lstrip("^").split(",")) == provider.startswith("^"):
        yield Finding(
            f"EFA is off: FI_PROVIDER is {provider}, so libfabric does not take it",
            "set FI_PROVIDER=efa in the job's environment",
        )


def _rdma(instance: str, environment: Mapping[str, str], files: Files) -> Iterator[Finding]:
    asked = environment.get("FI_EFA_USE_DEVICE_RDMA", "").lower()
    if instance.startswith(expected.WITHOUT_RDMA) and asked in ("1", "true", "yes", "on"):
        yield Finding(
            f"FI_EFA_USE_DEVICE_RDMA is {asked}, and the EFA of {instance} has no RDMA: libfabric "
            "ends the process",
            "take it out of the job's environment",
        )
    if not instance.startswith(expected.RDMA):
        return
    if asked in ("0", "false", "no", "off"):
        yield Finding(
            f"FI_EFA_USE_DEVICE_RDMA is {asked}: on {instance} EFA could read the GPUs' memory "
            "itself, and copies through the host's instead",
            "set it to 1 in the job's environment",
            sure=False,
        )
    elif not asked and instance.startswith("ml.p4"):
        yield Finding(
            f"FI_EFA_USE_DEVICE_RDMA is not set on {instance}: libfabric before 1.18 copies "
            "through the host's memory",
            "set it to 1 in the job's environment, as AWS's drivers do",
            sure=False,
        )


def _interface(instance: str, environment: Mapping[str, str], files: Files) -> Iterator[Finding]:
    """NCCL meets over TCP, also where it sends over EFA; names as in its user guide."""
    asked = environment.get("NCCL_SOCKET_IFNAME", "")
    if not asked or asked.startswith("^"):
        return
    exact, names = asked.startswith("="), asked.lstrip("=").split(",")
    fitting = [
        interface
        for interface in files.interfaces
        if any(interface == name if exact else interface.startswith(name) for name in names)
    ]
    there = ", ".join(files.interfaces) or "none"
    fix = "name the interface that /opt/ml/input/config/resourceconfig.json names"
    if not fitting:
        yield Finding(
            f"NCCL_SOCKET_IFNAME is {asked}, and the machine has {there}: NCCL cannot start", fix
        )
    elif fitting == ["lo"]:
        yield Finding(f"NCCL_SOCKET_IFNAME is {asked}: machines do not meet over lo", fix)


def _protocol(instance: str, environment: Mapping[str, str], files: Files) -> Iterator[Finding]:
    asked = environment.get("NCCL_PROTO", "").lower()
    if (
        "ll128" in asked
        and not asked.startswith("^")
        and not instance.startswith(("ml.p5", "ml.p6"))
    ):
        yield Finding(
            f"NCCL_PROTO is {asked}: LL128 needs data in order, which EFA of {instance} does not "
            "promise",
            "set NCCL_PROTO=simple as AWS's drivers do, or leave it to aws-ofi-nccl",
            sure=False,
        )


Rule = Callable[[str, Mapping[str, str], Files], Iterator[Finding]]
RULES: tuple[Rule, ...] = (_device, _plugin, _provider, _rdma, _interface, _protocol)


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()


def _plugins(folder: Path) -> list[str]:
    """Those of one folder; one that may not be read has none for the loader either."""
    if not os.access(folder, os.R_OK | os.X_OK):
        return []
    return sorted(path.name for path in folder.glob("libnccl-net*.so"))


def _below(place: Path) -> list[Path]:
    return sorted(place.rglob("libnccl-net*.so")) if place.is_dir() else []
