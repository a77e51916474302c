"""Permissions are derived for a type of step, or each step of the type is a gap with a reason."""

from trainyard.language.step_types import STEP_TYPES
from trainyard.permissions.step_requests import BY_PIPELINE, COLLECTORS, NOT_DERIVED


def test_every_type_is_covered_or_a_gap_with_a_reason():
    answers = [*COLLECTORS, *BY_PIPELINE, *NOT_DERIVED]
    assert sorted(answers) == sorted(STEP_TYPES)
