"""Instance types that a training can be foreseen on, with their prices."""

from collections.abc import Iterator

from trainyard.foresight.gpus import device_of
from trainyard.foresight.layouts import Machine
from trainyard.foresight.question import Offer
from trainyard.machines import MACHINES
from trainyard.machines import Machine as Instance
from trainyard.plan.prices import Prices, load


def offers(region: str) -> Iterator[Offer]:
    """All instance types with a known device and price in the region."""
    prices = load(region)
    for instance in MACHINES.values():
        offer = _offer(instance, prices)
        if offer is not None:
            yield offer


def _offer(instance: Instance, prices: Prices) -> Offer | None:
    gpu, price = device_of(instance), prices.hourly("training", instance.name)
    if gpu is None or price is None:
        return None
    machine = Machine(gpu=gpu.name, gpus=instance.accelerators, node_gbps=instance.network_gbps)
    return Offer(name=instance.name, machine=machine, usd_hour=price.usd, estimated=price.estimated)
