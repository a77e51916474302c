"""Which samples a training learns from, in which order, and which of them it is validated on."""

from collections.abc import Sequence

import numpy as np

from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.mixture import MixtureOrder, chosen, inputs
from training.data.order import Order, uniform, windowed
from training.mixture import Mixture
from trainyard.common.errors import DataError


def order(config: TrainConfig, train: Dataset, mixture: Mixture | None = None) -> Order:
    """The order that ``config.shuffle`` asks for, of the inputs by their weights if there are any.

    Raises:
        DataError: an input of the mixture has no sample.
    """
    if mixture is not None:
        return _mixed(config, train, mixture)
    if config.shuffle == "windowed":
        sizes = train.merged.samples
        return windowed(train.fingerprint, config.seed, sizes, config.window_samples)
    return uniform(train.fingerprint, config.seed, len(train))


def _mixed(config: TrainConfig, train: Dataset, mixture: Mixture) -> MixtureOrder:
    """Each input has an order of its own, which no other input changes.

    The windows of all inputs together are as large as one of a plain order; an input that is no
    larger than its window is shuffled as a whole.
    """
    found = chosen(inputs(train.merged), mixture.names, train.folder)
    window = max(1, config.window_samples // len(found))
    orders = [
        windowed(one.fingerprint, config.seed, one.sizes, window)
        if config.shuffle == "windowed" and one.samples > window
        else uniform(one.fingerprint, config.seed, one.samples)
        for one in found
    ]
    phases = [
        (step * config.global_batch, [shares.get(one.name, 0) for one in found])
        for step, shares in mixture.phases
    ]
    return MixtureOrder(found, orders, phases)


def validated(
    config: TrainConfig, validation: Dataset, mixture: Mixture | None = None
) -> dict[str, Sequence[int] | np.ndarray]:
    """Input → global indices of the samples that it is validated on; "" for all inputs together.

    Of a mixture equally many of each input that has as many, whatever the weights are: so trainings
    with other weights can be compared. An input may have none in this split.

    Raises:
        DataError: no input of the mixture has any.
    """
    if mixture is None:
        return {"": range(min(len(validation), config.validation_samples))}
    found = inputs(validation.merged)
    most = max(1, config.validation_samples // len(mixture.names))
    looked_at = {name: found[name].first(most) for name in mixture.names if name in found}
    if not looked_at:
        raise DataError(
            f"{validation.folder}: has samples of {', '.join(found)}, and of no input of the "
            f"mixture: {', '.join(mixture.names)}; shard the data with data.inputs"
        )
    return looked_at
