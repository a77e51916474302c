"""Grouping of metrics into plots by their names."""

import pytest

from trainyard.console.pages.step import groups

OURS = ["train:step", "train:learning_rate", "train:loss", "train:step_seconds",
        "train:data_seconds", "train:optimizer_seconds", "validation:loss"]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "plots"),
    [
        (
            OURS,
            [
                ("loss", ("train:loss", "validation:loss")),
                ("train:learning_rate", ("train:learning_rate",)),
                ("train:step_seconds", ("train:step_seconds",)),
                ("train:data_seconds", ("train:data_seconds",)),
                ("train:optimizer_seconds", ("train:optimizer_seconds",)),
            ],
        ),
        (["eval_loss", "loss", "epoch"], [("loss", ("eval_loss", "loss"))]),
        (["train:rmse", "validation:rmse"], [("rmse", ("train:rmse", "validation:rmse"))]),
        (
            ["test", "train:step_seconds"],
            [("test", ("test",)), ("train:step_seconds", ("train:step_seconds",))],
        ),
    ],
)  # fmt: skip
def test_metrics_share_a_plot_by_their_names(names: list[str], plots):
    assert [(title, tuple(found)) for title, found in groups(names)] == plots
