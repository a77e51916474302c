"""Check that the batch, the fallbacks and the image fit the machines of a training."""

from steps.train.config import TrainStepConfig
from steps.train.library_support import refuse_image
from training.config import TrainConfig
from training.strategy_table import refuse_torch
from trainyard.common.errors import nearest
from trainyard.instance_types import MACHINES
from trainyard.validate.rules.images import torch_version


def refuse_batch(train: TrainStepConfig) -> str | None:
    """Say why the batch is not shared evenly; checked where the instance type gives the number of
    ranks: one per accelerator.
    """
    if not train.loop or train.processes_per_node:
        return None
    for name in (train.instance_type, *train.fallback_instance_types):
        machine = MACHINES.get(name)
        if machine is None or not machine.accelerators:
            continue
        try:
            train.loop.micro_batches(train.instance_count * machine.accelerators)
        except ValueError as error:
            return f"on {train.instance_count} × {name}: {error}"
    return None


def refuse_type(name: str) -> str | None:
    """Say which instance type was meant; None when there is one of that name."""
    if name in MACHINES:
        return None
    return f"no such instance type of training and processing; {nearest(name, [*MACHINES])}"


def refuse_images(loop: TrainConfig, pytorch_version: str, own_image: str | None) -> str | None:
    """Say why the training image lacks what the loop needs; None when it has it, or when only the
    job can tell, in your own image (``own_image``).
    """
    if refusal := refuse_image(loop.strategy, pytorch_version, own_image):
        return refusal
    version = torch_version(own_image) if own_image else pytorch_version
    refusal = refuse_torch(loop, version) if version else None
    prefix = (
        f"training: is {own_image!r}" if own_image else f"pytorch_version: is {pytorch_version!r}"
    )
    return f"images.{prefix}; {refusal}" if refusal else None


def refuse_fallbacks(train: TrainStepConfig, *, is_encrypted: bool, parameter: bool) -> str | None:
    """Say why a run could not continue on a fallback type; None when it can on all. The definition
    is compiled once, for the first instance type.

    Args:
        is_encrypted: whether volumes are encrypted with the recipe's key.
        parameter: whether a run may change the instance type at all.
    """
    if train.fallback_instance_types and not parameter:
        return (
            "a run on another type changes the parameter TrainInstanceType: list it in "
            "pipeline.overridable"
        )
    refusals = (_refuse(train, name, is_encrypted) for name in train.fallback_instance_types)
    return next((refusal for refusal in refusals if refusal), None)


def _refuse(train: TrainStepConfig, name: str, is_encrypted: bool) -> str | None:
    machine, usual = MACHINES.get(name), MACHINES.get(train.instance_type)
    if machine is None:
        return f"{name}: {refuse_type(name)}"
    if 0 < machine.accelerators < train.processes_per_node:
        return (
            f"{name} has {machine.accelerators} accelerators, and train.processes_per_node is "
            f"{train.processes_per_node}"
        )
    if usual is None:
        return None
    if machine.kind != usual.kind:
        return (
            f"{name} needs an image for {machine.kind}, {usual.name} one for {usual.kind}, and the "
            "definition has one"
        )
    if is_encrypted and bool(usual.local_storage_gb) != bool(machine.local_storage_gb):
        return (
            f"one of {name} and {usual.name} has local disks, which take no key, and the "
            "other needs aws.kms_key for its volume; choose a type with the same disks"
        )
    return None
