"""How ranks share a training step. The recipe's ``strategy`` changes speed and memory, never the
result: each of these modules gives the same loss curve as ``single``.

    single      one process; the base of the others
    ddp         replicated weights
    mesh        FSDP2 (full and hybrid), tensor, context and pipeline parallel, on one device mesh
    deepspeed   ZeRO 1, 2, 3
    smddp       DDP over SageMaker's data-parallel collectives
    smp         SageMaker's model parallelism v2
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from training.config import TrainConfig
from training.strategies.precision import choose_precision
from training.strategies.ranks import Ranks, join_group, read_ranks
from training.strategies.single import Strategy
from training.strategy_table import SPLIT_PLACE
from training.workloads import Workload
from trainyard.common.errors import TrainingError


@contextmanager
def start_strategy(
    config: TrainConfig, workload: Workload, checkpoint: tuple[int, str] = (0, "")
) -> Iterator[Strategy]:
    """Context in which this rank has joined the other ranks, with the strategy that the settings
    select.

    Args:
        checkpoint: step and precision of this training's newest checkpoint, for precision auto.

    Raises:
        TrainingError: the strategy cannot use this many ranks, the workload's model does not
            support it, the GPUs lack a required feature, or the ranks' settings differ.
    """
    rank, local_rank, world = read_ranks()
    try:
        config.count_micro_batches(world)
    except ValueError as error:
        raise TrainingError(str(error)) from None
    strategy = select_strategy(config)
    with join_group(config.collective_timeout_seconds, strategy.register_backend()) as ranks:
        check_settings(config, ranks)
        instance = strategy(choose_precision(config, ranks, checkpoint), workload, ranks)
        try:
            yield instance
        finally:
            instance.leave()


def check_settings(config: TrainConfig, ranks: Ranks) -> None:
    """Check that all ranks have the same settings and kind of device.

    They decide when a rank enters a collective, so with different ones ranks would wait for each
    other. Collective: call it on every rank.

    Raises:
        TrainingError: a rank's settings differ from rank 0's; raised on every rank.
    """
    first, *others = ranks.gather(config.model_dump() | {"device": ranks.device.type})
    for rank, other in enumerate(others, 1):
        if differs := [name for name, value in first.items() if other[name] != value]:
            raise TrainingError(
                f"{differs[0]}: is {other[differs[0]]} on rank {rank}, and {first[differs[0]]} on "
                "rank 0; start all ranks with the same settings, on machines of one kind"
            )


def select_strategy(config: TrainConfig) -> type[Strategy]:
    """Return the strategy's class for these settings."""
    split = config.split > 1
    module, _, name = (SPLIT_PLACE if split else config.entry.class_path).partition(".")
    return getattr(import_module(f"{__name__}.{module}"), name)
