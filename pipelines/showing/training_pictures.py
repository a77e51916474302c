"""The pictures of a training: its metric lines against the optimizer step."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from trainyard.runs.plots import BAD, MODEL, picture

History = Sequence[dict[str, float]]
"""Metric lines of the training job: name → value, each with its ``step``."""


def loss_curve(history: History) -> str | None:
    """Training and validation loss against the optimizer step."""
    train = _series(history, "loss")
    validation = _series(history, "validation_loss")
    if not train:
        return None

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*train, strict=True), color=MODEL, label="train")
        if validation:
            axes.plot(*zip(*validation, strict=True), "o-", color=BAD, label="validation", ms=4)
        axes.set(xlabel="optimizer step", ylabel="loss (nats per unit)")
        axes.legend(frameon=False)

    return picture(draw, (7, 3.4))


def throughput(history: History) -> str | None:
    """Samples per second of all ranks together against the optimizer step."""
    points = _series(history, "samples_per_second")
    if not points:
        return None

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*points, strict=True), color=MODEL)
        axes.set(xlabel="optimizer step", ylabel="samples per second, all ranks")
        axes.set_ylim(bottom=0)

    return picture(draw, (7, 2.6))


def _series(history: History, metric: str) -> list[tuple[float, float]]:
    return [(line["step"], line[metric]) for line in history if metric in line]


PICTURES = (loss_curve, throughput)
"""In the order in which they stand on the page."""
