"""Permissions are derived for a type of step, or it is said why they are not."""

from trainyard.language.step_types import STEP_TYPES
from trainyard.permissions.jobs import BY_PIPELINE, COVERED, NOT_DERIVED


def test_every_type_is_covered_or_refused_with_a_reason():
    answers = [*COVERED, *BY_PIPELINE, *NOT_DERIVED]
    assert sorted(answers) == sorted(STEP_TYPES)


def test_a_type_whose_jobs_are_covered_has_a_role():
    assert all(STEP_TYPES[name].role for name in COVERED)
