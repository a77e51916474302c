"""Metrics of strangers' logs: what their MetricDefinitions find, at what step."""

import math

import pytest

from trainyard.runs.metric_lines import (
    LineMetrics,
    compile_definitions,
    find_literal_prefix,
    parse_line_metrics,
)


def read(regexes: dict[str, str], line: str) -> LineMetrics | None:
    entries = [{"Name": name, "Regex": regex} for name, regex in regexes.items()]
    return parse_line_metrics(
        compile_definitions({"AlgorithmSpecification": {"MetricDefinitions": entries}}), line
    )


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        (r"(?:^|\s)loss=([0-9.]+)", "loss="),
        (r"'loss': ([0-9\.]+)", "'loss': "),
        (r".*\[[0-9]+\].*#011train-rmse:([-+]?[0-9]*\.?[0-9]+).*", ""),
        (r"Train_acc=(.*?);", "Train_acc="),
        (r"loss=(\d+)|error=(\d+)", ""),
        (r"steps?=(\d+)", "step"),
        (r"val[_-]loss: (\S+)", "val"),
        (r"(?i)loss: (\S+)", ""),
    ],
)
def test_a_hint_is_in_every_line_that_the_expression_finds(regex: str, text: str):
    assert find_literal_prefix(regex) == text


RMSE = r".*\[[0-9]+\].*#011train-rmse:([-+]?[0-9]*\.?[0-9]+).*"
HUGGING = {"loss": r"'loss': ([0-9.e-]+)", "grad": r"'grad_norm': (\S+),"}
SAID = "{'loss': 0.5123, 'grad_norm': nan, 'learning_rate': 4.9e-05, 'epoch': 0.02}"
OURS = {"step": r"step=(\d+)", "train:loss": r"loss=(\S+)"}


@pytest.mark.parametrize(
    ("regexes", "line", "values", "counter", "step"),
    [
        (HUGGING, SAID, {"loss": 0.5123, "grad": math.nan}, "epoch", 0.02),
        ({"r": RMSE}, "[7]#011train-rmse:0.25#011validation-rmse:0.5", {"r": 0.25}, "round", 7),
        (OURS, "step=120 loss=inf", {"step": 120, "train:loss": math.inf}, "step", 120),
        ({"a": r"acc: ([0-9.]+)"}, "  10%|#\r Epoch 3/10 acc: 0.91\n", {"a": 0.91}, "epoch", 3),
        ({"Train_acc": r"Train_acc=(.*?);"}, "Train_acc=0.9;", {"Train_acc": 0.9}, "", None),
        ({"gone": r"x=(\d+)?"}, "x=", None, "", None),
        ({"loss": r"loss (\S+)"}, "loss nothing", None, "", None),
        ({"bad": r"loss=([0-9", "none": "loss"}, "loss=1", None, "", None),
    ],
)
def test_a_stranger_s_line_is_read(regexes, line: str, values, counter: str, step: float | None):
    one = read(regexes, line)
    if values is None:
        assert one is None
        return
    assert one is not None and (one.counter, one.step) == (counter, step)
    assert one.values == pytest.approx(values, nan_ok=True)
