"""Strangers' regular expressions: what they find, and that none holds its reader."""

import time

import pytest

from trainyard import metric_regex
from trainyard.metric_regex import Expression

ENDLESS = "a" * 60 + "b"


@pytest.mark.parametrize(
    "text",
    [r"loss=([0-9.]+)", r".*loss=(?<value>\S+).*", r"(?<=\bloss=)(\d\.\d+)", r"\p{L}+=(\S+)"],
)
def test_what_the_dialects_of_others_write_is_found(text: str):
    match = Expression(text).search("step=1 loss=0.25") or []
    assert match[1] in ("0.25", "1")


@pytest.mark.parametrize("text", ["loss=(", "a{1000000000}", "((a{1000}){1000}){1000}"])
def test_what_is_none_is_refused(text: str):
    with pytest.raises(ValueError, match=r"missing|repeats"):
        Expression(text)


def test_one_endless_line_ends_it_and_others_go_on(monkeypatch):
    monkeypatch.setattr(metric_regex, "SECONDS_AHEAD", 0.02)
    endless, other = Expression("(a|aa)+$"), Expression("(b)$")
    began = time.thread_time()
    assert endless.search(ENDLESS) is None and endless.is_abandoned
    assert endless.search("aaa") is None, "it finds nothing any more"
    assert time.thread_time() - began < 5, "or it would take 2^40 steps"
    assert other.search(ENDLESS) and not other.is_abandoned
    said = endless.explain_timeout("loss")
    assert "metric loss" in said and "(a|aa)+$" in said


def test_many_slow_lines_end_it_too_and_a_line_that_takes_little_costs_nothing(monkeypatch):
    monkeypatch.setattr(metric_regex, "SECONDS_AHEAD", 0.02)
    slow, lines = Expression("(a|aa)+$"), 0
    while not slow.is_abandoned:
        slow.search("a" * 24 + "b")  # takes about 40 ms
        lines += 1
        assert lines < 1_000
    one = Expression(r".*\[[0-9]+\].*#011train-rmse:([-+]?[0-9]*\.?[0-9]+).*")
    for _ in range(100):
        assert one.search("step 120 learning_rate=0.003 " * 100) is None
    assert not one.is_abandoned
