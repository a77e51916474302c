"""Each rule reports its fault, once, and none reports a healthy training."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.train.config import TrainStepConfig
from tests.training.trainings import SETTINGS
from tests.training.watching.histories import WRONG, Lines, all_events, healthy
from training.watching.__main__ import parse_metrics
from training.watching.metric_line import METRICS
from training.watching.rules import RULES
from training.watching.rules.loss_not_falling import is_falling_steadily, is_underway
from training.watching.watch_rule import Plan
from training.watching.watcher import Watcher, parse_watching
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

PLAN = Plan(max_steps=120, warmup_steps=5)
WATCHING = parse_watching('{"cost_beyond_plan": {"minutes": 10}}')


def list_event_rules(lines: Lines, watching=WATCHING) -> list[str]:
    return [event.rule for event in all_events(lines, watching, PLAN)]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_speaks_once_of_what_it_looks_for_and_says_what_it_means(rule):
    events = all_events(WRONG[rule](), WATCHING, PLAN)
    [event] = [event for event in events if event.rule == rule]
    assert event.action == "warn" and 0 < event.step <= 120
    assert {event.rule for event in events} - {rule} <= {"loss_not_falling"}  # a loss × 1000 …
    form = r"step=(\d+) watch\.(\w+)=(\S+) threshold=(\S+) action=(warn|stop): (.+); (.+)"
    assert (match := re.fullmatch(form, event.line)), event.line
    assert match[2] == rule and int(match[1]) == event.step
    read = {name: found[1] for name, regex in METRICS if (found := re.search(regex, event.line))}
    assert read.keys() == {"train:step", f"watch:{rule}"}
    assert float(read[f"watch:{rule}"]) == pytest.approx(event.finding.value, rel=1e-5)
    assert rule in event.reason and event.finding.fix in event.reason


@given(st.integers(0, 2**32 - 1), st.floats(0.001, 0.15), st.integers(30, 300))
def test_none_speaks_of_a_healthy_training(seed, noise, lines):
    assert list_event_rules(healthy(lines, seed, noise)) == []


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e-2), st.integers(40, 200))
def test_a_loss_that_falls_slowly_falls_and_its_mirror_image_rises(seed, fall, lines):
    """The loss changes by a share of its size, with noise as large: 40 lines show it by ten
    errors.
    """
    random = np.random.default_rng(seed)
    losses = [4 * (1 - fall * (n + random.uniform(-0.5, 0.5) * 10) / lines) for n in range(lines)]
    assert is_falling_steadily(losses)
    assert not is_falling_steadily(losses[::-1]) and not is_falling_steadily([losses[0]] * lines)
    told = [{"step": n, "loss": loss} for n, loss in enumerate(losses, 1)]
    assert list_event_rules(told) == []


@given(st.floats(1e-5, 1e-3), st.integers(1, 10**6))
def test_a_flat_loss_is_said_once_the_weights_have_moved_far_enough_or_never_will(ratio, steps):
    lines = [{"step": 1, "update_ratio": ratio}, {"step": steps, "update_ratio": ratio}]
    assert is_underway(lines, 0.1, 0) == (ratio * steps < 0.1)
    assert not is_underway(lines, 0.1, int(0.001 / ratio))
    assert not is_underway([line | {"update_ratio": 1e-9} for line in lines], 0.1, 0)
    assert not is_underway([{"step": 1}, {"step": steps}], 0.1, 0)


def test_a_flat_loss_waits_for_the_weights():
    flat = WRONG["loss_not_falling"]()
    for ratio, expected in ((3e-4, []), (1e-2, ["loss_not_falling"]), (1e-9, ["loss_not_falling"])):
        lines = [line | ({"update_ratio": ratio} if "loss" in line else {}) for line in flat]
        assert list_event_rules(lines) == expected


@pytest.mark.parametrize("rule", RULES)
def test_a_restart_repeats_nothing_and_forgets_nothing(rule):
    """Wherever it happens: earlier reports are not repeated, the others follow."""
    lines = [line for line in WRONG[rule]() if line["step"] <= 120]
    told = [(e.rule, e.step) for e in all_events(lines, WATCHING, PLAN)]
    for at in range(0, len(lines), 17):
        first, second = Watcher(WATCHING, PLAN), Watcher(WATCHING, Plan(120, 5, 0))
        before = [(e.rule, e.step) for line in lines[:at] for e in first.add(line)]
        second.begin(lines[:at])
        after = [(e.rule, e.step) for line in lines[at:] for e in second.add(line)]
        # A process's first line says nothing of usual times: what hangs on it comes a line later.
        assert [name for name, _ in before + after] == [name for name, _ in told], at
        assert all(abs(a - b) <= 6 for (_, a), (_, b) in zip(before + after, told, strict=True))


def test_one_that_was_gone_for_long_speaks_again():
    lines = healthy(200)
    for line in lines:
        if "loss" in line and (50 <= line["step"] < 60 or line["step"] >= 150):
            line["checkpoint_failures"] = 1
    assert list_event_rules(lines) == ["checkpoint_failing"] * 2


def test_a_rule_that_is_off_says_nothing():
    off = parse_watching('{"data_bottleneck": {"action": "off"}}')
    assert list_event_rules(WRONG["data_bottleneck"](), off) == []


def test_a_wrong_setting_is_told_with_its_field():
    with pytest.raises(TrainingError, match="cost_beyond_plan.minutes"):
        parse_watching('{"cost_beyond_plan": {"minutes": -1}}')
    with pytest.raises(TrainingError, match="usd and usd_an_hour"):
        parse_watching('{"cost_beyond_plan": {"usd": 5}}')


def test_the_time_limit_of_the_job_is_the_plan_unless_another_is_given():
    loop = {"loop": SETTINGS, "max_runtime_minutes": 90}
    assert TrainStepConfig(**loop).watching.cost_beyond_plan.planned_minutes == 90
    given = {"watch": {"cost_beyond_plan": {"usd": 100, "usd_an_hour": 50}}}
    assert TrainStepConfig(**loop, **given).watching.cost_beyond_plan.planned_minutes == 120


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{'loss': 2.31, 'grad_norm': 1.5, 'epoch': 0.1}", {"loss", "grad_norm", "epoch"}),
        ("{'loss': '2.31', 'grad_norm': '1.5e-3', 'epoch': '0.1'}", {"loss", "grad_norm", "epoch"}),
        ("{'loss': 'nan', 'epoch': '0.1'}", set()),
        ("step=3 eval_loss=0.5", {"step", "validation_loss"}),
        ("Epoch 1: loss: 0.25, acc: 0.9", {"loss", "acc"}),
        ("the loss is nan", set()),
        ("accuracy=0.5", set()),
    ],
)
def test_lines_of_others_loops_are_read(line, expected):
    assert parse_metrics(line).keys() == expected
