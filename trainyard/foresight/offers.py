"""Instance types that a training can be foreseen on, with their prices."""

from collections.abc import Iterator

from trainyard.foresight.gpus import GPUS
from trainyard.foresight.layouts import Machine
from trainyard.foresight.question import Offer
from trainyard.machines import MACHINES
from trainyard.machines import Machine as Instance
from trainyard.plan.prices import Prices, load


def gpu_of(instance: Instance) -> str | None:
    """The device in the instance: of that name, and of nearly that memory."""
    alike = [
        gpu
        for gpu in GPUS.values()
        if gpu.name.partition("-")[0].lower() == instance.accelerator
        and gpu.memory_gib <= instance.accelerator_memory_gib + 1
    ]
    return max(alike, key=lambda gpu: gpu.memory_gib).name if alike else None


def offers(region: str) -> Iterator[Offer]:
    """All instance types with a known device and price in the region."""
    prices = load(region)
    for instance in MACHINES.values():
        offer = _offer(instance, prices)
        if offer is not None:
            yield offer


def _offer(instance: Instance, prices: Prices) -> Offer | None:
    gpu, price = gpu_of(instance), prices.hourly("training", instance.name)
    if gpu is None or price is None:
        return None
    machine = Machine(gpu=gpu, gpus=instance.accelerators, node_gbps=instance.network_gbps)
    return Offer(name=instance.name, machine=machine, usd_hour=price.usd, estimated=price.estimated)
