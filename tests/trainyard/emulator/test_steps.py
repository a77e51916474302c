"""Runners of step types: every type has one, or a reason why it has none."""

import json
from collections.abc import Iterator

import pytest

from trainyard.emulator.api import ApiError
from trainyard.emulator.dag.definition import parse
from trainyard.emulator.dag.work import Work
from trainyard.emulator.steps import NOT_RUN, RUNNERS, Attempt, Runner
from trainyard.emulator.steps.runner import runs
from trainyard.language.step_types import STEP_TYPES


def definition(kind: str) -> str:
    step = {"Name": "S", "Type": kind, "Arguments": {}}
    return json.dumps({"Version": "2020-12-01", "Steps": [step]})


def test_every_type_runs_or_is_refused_with_a_reason():
    assert set(RUNNERS) | set(NOT_RUN) == set(STEP_TYPES)
    assert not set(RUNNERS) & set(NOT_RUN)


@pytest.mark.parametrize("kind", NOT_RUN)
def test_a_type_that_is_not_run_is_refused_by_name(kind: str):
    with pytest.raises(ApiError, match=f"'S' has type '{kind}', which is not run") as caught:
        parse(definition(kind))
    assert NOT_RUN[kind] in caught.value.message


@pytest.fixture
def lineage() -> Iterator[type[Runner]]:
    @runs("Lineage")
    class LineageRunner(Runner):
        def run(self, attempt: Attempt) -> None:
            attempt.note({"ActionArns": {"a": attempt.name}})

    yield LineageRunner
    del RUNNERS["Lineage"]


def test_registering_a_runner_is_all_that_a_type_needs(lineage: type[Runner]):
    assert parse(definition("Lineage")).steps["S"].type == "Lineage"
    made: list[dict] = []
    work = Work(services=None)
    work.runner("Lineage").run(Attempt(arguments={}, name="n", scope=None, note=made.append))
    assert work.describe({"Lineage": made[0]}) == {"ActionArns": {"a": "n"}}
    assert work.outputs({"Lineage": made[0]}) == []


@pytest.mark.parametrize(("kind", "why"), [("Fail", "has a runner"), ("Fial", "is not in")])
def test_a_runner_of_a_type_that_has_one_or_is_none_is_refused(kind: str, why: str):
    with pytest.raises(ValueError, match=f"step type '{kind}' of .* {why}"):
        runs(kind)(Runner)
