"""Definitions of any length are valid, and a command that fails is not measured."""

import json

import pytest

from benchmarks.plan import Command, processor_seconds, repeated
from tests.trainyard.emulator.harness import (
    compare,
    condition_step,
    fail_step,
    json_get,
    pipeline,
    process_step,
)
from trainyard.emulator.sagemaker.pipelines.checked_definition import parse

pytestmark = pytest.mark.long

FILES = [{"PropertyFileName": "Gate", "OutputName": "gate", "FilePath": "gate.json"}]


def test_copies_refer_to_their_own_steps_and_follow_each_other():
    first = process_step("A", "true", outputs={"gate": "s3://bkt/gate"}, PropertyFiles=FILES)
    check = [compare("Equals", json_get("A", "Gate", "verdict"), "pass")]
    second = condition_step("B", check, [], [fail_step("C", {"Get": "Steps.A.ProcessingJobArn"})])
    steps = parse(repeated(json.dumps(pipeline([first, second])), 3)).steps
    assert list(steps) == ["A", "B", "C", "A1", "B1", "C1", "A2", "B2", "C2"]
    assert set(steps["A1"].depends_on) == {"B"}
    assert set(steps["B2"].depends_on) == set(steps["C2"].depends_on) == {"A2"}


def test_a_command_that_fails_ends_the_benchmark_with_what_it_said():
    with pytest.raises(SystemExit, match="(?s)exit 3.*oh no"):
        processor_seconds(Command("", ("-c", "print('oh no'); raise SystemExit(3)")), {})
    assert processor_seconds(Command("", ("-c", "raise SystemExit(2)"), (2,)), {}) > 0
