"""The instance types that training and processing jobs can have, and their hardware.

``instance_types.csv`` holds one line for each name in botocore 1.44.5's TrainingInstanceType, which
includes all of ProcessingInstanceType. The figures are those of EC2's
DescribeInstanceTypes as karpenter-provider-aws publishes them (website, reference/
instance-types.md: commit 1d92708 of 2026-08-21; p2 and p3 in its v1.0). Two were written from
memory of AWS's product pages instead: all of p6e-gb200, and the memory of a Trainium chip.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NEURON = ("trainium", "trainium2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A SageMaker instance type."""

    name: str
    """Name, such as ``ml.p4d.24xlarge``."""

    vcpus: int
    memory_gib: float
    """All memory in GiB, of which SageMaker's agents use a part."""

    accelerator: str | None
    """Kind of GPU or Trainium chip, such as ``a100``; None for a CPU instance."""

    accelerators: int
    """Number of accelerators; 0 for a CPU instance."""

    accelerator_memory_gib: float
    """Memory of each accelerator, in GiB."""

    efa: bool
    """True if it has an Elastic Fabric Adapter."""

    local_storage_gb: int
    """Size of the NVMe disks in GB, which SageMaker uses instead of an EBS volume; 0 if it has
    none."""

    network_gbps: float
    """Baseline bandwidth of the network in Gbit/s, not the "up to" figure; 0 if AWS states none."""

    @property
    def kind(self) -> Literal["cpu", "gpu", "neuron"]:
        """Hardware that the image must be built for."""
        if self.accelerator is None:
            return "cpu"
        return "neuron" if self.accelerator in NEURON else "gpu"


def _read_machines(path: Path) -> dict[str, Machine]:
    with path.open(encoding="utf-8", newline="") as file:
        return {
            row["name"]: Machine(
                name=row["name"],
                vcpus=int(row["vcpus"]),
                memory_gib=float(row["memory_gib"]),
                accelerator=row["accelerator"] or None,
                accelerators=int(row["accelerators"]),
                accelerator_memory_gib=float(row["accelerator_memory_gib"]),
                efa=row["efa"] == "yes",
                local_storage_gb=int(row["local_storage_gb"]),
                network_gbps=float(row["network_gbps"]),
            )
            for row in csv.DictReader(file)
        }


MACHINES: Mapping[str, Machine] = _read_machines(Path(__file__).with_suffix(".csv"))
"""Mapping of an instance type's name to its properties."""
