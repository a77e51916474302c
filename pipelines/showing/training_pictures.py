"""The pictures of a training: its metric lines against the optimizer step."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.showing.drawing import BAD, MODEL, picture, picture_of

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


def curves(metrics: Mapping[str, Sequence[float]]) -> str | None:
    """Each metric of a script against the line in which it stood, one below the other."""
    if not metrics:
        return None

    def draw(figure: Figure) -> None:
        every = figure.subplots(len(metrics), squeeze=False)[:, 0]
        for axes, (name, values) in zip(every, metrics.items(), strict=True):
            axes.plot(range(1, len(values) + 1), values, ".-", color=MODEL, ms=4)
            axes.set_ylabel(name)
        every[-1].set_xlabel("times that the script printed it")

    return picture_of(draw, (7, 0.6 + 1.8 * len(metrics)))


def inputs(history: History) -> str | None:
    """Epochs of each input of a mixture, and its own validation loss, against the step."""
    epochs, losses = _of_inputs(history, "epochs."), _of_inputs(history, "validation_loss.")
    if not epochs:
        return None

    def draw(axes: Axes) -> None:
        right = axes.twinx()
        for number, (name, points) in enumerate(epochs.items()):
            axes.plot(*zip(*points, strict=True), color=f"C{number}", label=name)
            if name in losses:
                right.plot(*zip(*losses[name], strict=True), "o--", color=f"C{number}", ms=3)
        axes.set(xlabel="optimizer step", ylabel="epochs of each input (lines)")
        right.set(ylabel="its validation loss (dashed)")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)

    return picture(draw, (7, 3.4))


def _of_inputs(history: History, prefix: str) -> dict[str, list[tuple[float, float]]]:
    """Input → (step, value), of the metrics that begin with ``prefix``."""
    names = {name for line in history for name in line if name.startswith(prefix)}
    return {name.removeprefix(prefix): _series(history, name) for name in sorted(names)}


def _series(history: History, metric: str) -> list[tuple[float, float]]:
    return [(line["step"], line[metric]) for line in history if metric in line]


PICTURES: Mapping[str, Callable[[History], str | None]] = {
    "loss of training and validation against the optimizer step": loss_curve,
    "samples per second against the optimizer step": throughput,
    "epochs of each input, and its validation loss, against the optimizer step": inputs,
}
"""Description → picture, in the order in which they stand on the page."""
