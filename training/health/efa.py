"""What keeps NCCL's traffic between machines off EFA, by settings and files alone (experimental).

Where anything is missing NCCL takes TCP without a word, and a training is several times slower.
What AWS sets, and when: sagemaker/train/container_drivers (SDK 3.27) torchrun_driver.py and
mpi_utils.py. What is still needed: aws-samples/awsome-distributed-training, efa-cheatsheet.md;
libfabric's fi_efa(7); NCCL's user guide, env.html.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

FAMILIES = ("ml.p3dn.", "ml.p4d", "ml.p5", "ml.p6")
"""How instance types begin that have EFA, whatever their size."""

PLUGINS = ("/opt/amazon/ofi-nccl", "/opt/aws-ofi-nccl")
"""Where EFA's installer and AWS's images put aws-ofi-nccl."""

UNSET = "take it out of the job's environment"


def instance_type(environment: Mapping[str, str] = os.environ) -> str:
    """``ml.p4d.24xlarge``, as SageMaker's drivers or its resource configuration say; else empty."""
    if known := environment.get("SM_CURRENT_INSTANCE_TYPE"):
        return known
    return json.loads(environment.get("SM_RESOURCE_CONFIG") or "{}").get(
        "current_instance_type", ""
    )


def findings(
    instance: str, environment: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> Iterator[str]:
    """What keeps the traffic of several machines of this type off EFA, each with what to do."""
    if not instance.startswith(FAMILIES):
        return
    devices = root / "sys/class/infiniband"
    if not devices.is_dir() or not any(devices.iterdir()):
        yield (
            f"EFA is off: {instance} has it, but /sys/class/infiniband lists no device here; on "
            "Kubernetes and HyperPod ask for vpc.amazonaws.com/efa, on SageMaker restart the job"
        )
    if (network := environment.get("NCCL_NET", "")).lower() == "socket":
        yield f"EFA is off: NCCL_NET is {network}; {UNSET}"
    provider = environment.get("FI_PROVIDER", "efa")
    if ("efa" in provider.lstrip("^").split(",")) == provider.startswith("^"):
        yield f"EFA is off: FI_PROVIDER is {provider}; set FI_PROVIDER=efa in the job's environment"
    yield from _plugin(environment, root)


def _plugin(environment: Mapping[str, str], root: Path) -> Iterator[str]:
    """NCCL's way to EFA, where the loader looks for it."""
    wanted = environment.get("NCCL_NET_PLUGIN", "")
    if wanted.startswith("/"):
        return  # a file of its own, which NCCL opens by its path
    if wanted == "none":
        yield f"EFA is off: NCCL_NET_PLUGIN is none; {UNSET}"
        return
    name = f"libnccl-net-{wanted}.so" if wanted else "libnccl-net.so"
    if any((root / folder.lstrip("/") / name).is_file() for folder in _searched(environment, root)):
        return
    unused = [path for place in PLUGINS for path in (root / place.lstrip("/")).rglob(name)]
    if unused:
        folder = f"/{unused[0].parent.relative_to(root)}"
        yield (
            f"EFA is off: {name} of aws-ofi-nccl is in {folder}, where the loader does not look; "
            f"put {folder} on LD_LIBRARY_PATH"
        )
    else:
        yield f"EFA is off: the image has no {name} (aws-ofi-nccl); use one of AWS's images"


def _searched(environment: Mapping[str, str], root: Path) -> list[str]:
    """The loader's folders, as ld.so(8) has them."""
    listed = environment.get("LD_LIBRARY_PATH", "").split(":")
    for file in sorted(root.glob("etc/ld.so.conf.d/*.conf")):
        listed += file.read_text(encoding="utf-8", errors="replace").split()
    usual = ["/lib", "/usr/lib", "/usr/local/lib", "/lib64", "/usr/lib64"]
    usual += [f"{folder}/x86_64-linux-gnu" for folder in usual[:2]]
    return [folder for folder in (*listed, *usual) if folder.startswith("/")]
