"""Instance types that a training can be foreseen on, with their prices."""

from collections.abc import Iterator

from trainyard.foresight.layouts import Machine
from trainyard.foresight.machines import machines
from trainyard.foresight.question import Offer
from trainyard.machines import MACHINES


def offers(region: str) -> Iterator[Offer]:
    """All instance types whose device foresight has figures of, and that have a price."""
    for name, instance in MACHINES.items():
        if instance.kind == "gpu" and (offer := _offer(name, region)):
            yield offer


def _offer(name: str, region: str) -> Offer | None:
    one = machines(name, 1, region)
    if one.gpu is None or one.usd_per_hour is None:
        return None
    machine = Machine(gpu=one.gpu.name, gpus=one.gpus_per_node, node_gbps=one.node_gbps)
    return Offer(name=name, machine=machine, usd_hour=one.usd_per_hour, estimated=one.estimated)
