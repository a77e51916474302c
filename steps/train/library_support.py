"""AWS's documented support for strategies that depend on libraries: machines, images, launchers.

SMDDP   SageMaker Developer Guide, "Compatibility with the SMDDP library optimized for AWS
        infrastructure" (model-parallel-core-features-v2-smddp-allgather: "supports P4 and P4de
        instances") and "Supported frameworks, AWS Regions, and instances types"
        (distributed-data-parallel-support); its release notes (data-parallel-release-notes) have
        PyTorch 2.3.0 as the last framework image with it, 2.4.1 is in SMP images only. On P3 it
        no longer optimizes anything.
SMP v2  "Supported frameworks and AWS Regions" (distributed-model-parallel-support-v2) and the
        release notes (model-parallel-release-notes): one image for each version of PyTorch.
MPI     sagemaker/train/container_drivers/distributed_drivers/mpi_driver.py of SDK 3.27.
"""

from collections.abc import Mapping

P4 = ("ml.p4d.24xlarge", "ml.p4de.24xlarge")
INSTANCE_TYPES: Mapping[str, tuple[str, ...]] = {
    "smddp": P4,
    "smp": (*P4, "ml.p5.48xlarge", "ml.p5e.48xlarge"),
    "deepspeed": ("ml.p", "ml.g"),
}
"""Strategy → the instance types, or their prefixes, that it is for; the others run on any."""

LAUNCHERS = {"smddp": "torchrun", "smp": "torchrun"}
"""Strategy → the one launcher that starts it; the others are started by any."""

SMP_IMAGES = {"2.4.1": "cu121", "2.5.1": "cu124"}
"""PyTorch version → CUDA version of AWS's SMP images, which hold SMDDP too. PyTorch 2.3.1's image
is left out, and so is the framework image of 2.3.0, the last with SMDDP: the loop does not train
under them (torch.nn.RMSNorm is new in 2.4)."""

REQUIREMENTS = {"deepspeed": ("deepspeed",), "mpi": ("mpi4py", "paramiko")}
"""Strategy or launcher → packages that the container installs for it, from the lock; AWS's MPI
driver imports both."""


def refuse_machines(strategy: str, launcher: str, instance_type: str) -> str | None:
    """Say why a strategy cannot be started so on such machines; None when it can."""
    required_launcher = LAUNCHERS.get(strategy, launcher)
    if launcher != required_launcher:
        return (
            f"launcher {launcher} cannot start strategy {strategy}: set launcher to "
            f"{required_launcher}"
        )
    known_types = INSTANCE_TYPES.get(strategy)
    if known_types and not instance_type.startswith(known_types):
        machine_text = (
            "GPUs (ml.p…, ml.g…)" if strategy == "deepspeed" else f"one of {', '.join(known_types)}"
        )
        return (
            f"instance_type {instance_type} is not for strategy {strategy}, which needs "
            f"{machine_text}: choose one, or set loop.strategy to ddp or fsdp"
        )
    return None


def refuse_image(strategy: str, pytorch_version: str, training_image: str | None) -> str | None:
    """Say why the image lacks a strategy's library; None when it has it, or the image
    is your own.
    """
    if training_image:
        return None
    if strategy == "smddp":
        return (
            "images.training: strategy smddp needs an image that you name, such as AWS's SMP image "
            f"of PyTorch {' or '.join(SMP_IMAGES)}: AWS's PyTorch images since 2.4 lack its library"
        )
    if strategy == "smp" and pytorch_version not in SMP_IMAGES:
        return (
            f"images.pytorch_version: is {pytorch_version!r}; AWS has images with strategy "
            f"{strategy} for {', '.join(SMP_IMAGES)}: choose one, or name images.training"
        )
    return None


def requirements(strategy: str, launcher: str) -> tuple[str, ...]:
    """Return the packages that the train step's container needs for them beyond the usual ones."""
    return REQUIREMENTS.get(strategy, ()) + REQUIREMENTS.get(launcher, ())
