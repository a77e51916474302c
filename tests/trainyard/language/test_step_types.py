"""The table of step types: complete, and nothing in it that botocore or the SDK does not have."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainyard.language.step_types import NESTED_KEYS, STEP_TYPES, get_step_type
from trainyard.validate.step_properties import load_service_shapes


def test_it_has_every_type_of_the_sdk():
    """Read and not imported, which takes seconds."""
    roots = find_spec("sagemaker").submodule_search_locations
    [steps] = [path for root in roots for path in Path(root).glob("mlops/workflow/steps.py")]
    classes = [n for n in ast.parse(steps.read_text()).body if isinstance(n, ast.ClassDef)]
    [kinds] = [each for each in classes if each.name == "StepTypeEnum"]
    assert set(STEP_TYPES) == {n.value.value for n in kinds.body if isinstance(n, ast.Assign)}


@pytest.mark.parametrize("kind", STEP_TYPES.values(), ids=list(STEP_TYPES))
def test_an_entry_names_what_there_is(kind):
    shapes = load_service_shapes(kind.service)
    named = [kind.request, kind.describe, kind.listing, *sum(kind.variants.values(), ())]
    assert {name for name in named if name} <= set(shapes)
    members = shapes[kind.request]["members"] if kind.request else kind.arguments.get("members", {})
    keyed = [path.split(".")[0] for path in kind.cache_key]
    own = [*keyed, *kind.nests, *filter(None, [kind.made_up, kind.role])]
    assert set(own) <= set(members)
    assert set(kind.required_members) <= set(kind.fields)
    assert set(kind.open_members) <= set(shapes[kind.describe]["members"] if kind.describe else ())
    assert kind.is_cached or not kind.cache_key


@pytest.mark.parametrize("kind", STEP_TYPES.values(), ids=list(STEP_TYPES))
def test_its_metadata_are_told_under_that_name(kind):
    told = load_service_shapes("sagemaker")["PipelineExecutionStepMetadata"]["members"]
    assert kind.metadata_key in told


def test_what_is_no_type_has_nothing():
    assert (
        get_step_type("Trainning")
        == get_step_type(None)
        == get_step_type({})
        != get_step_type("Training")
    )
    assert set(NESTED_KEYS) == {"IfSteps", "ElseSteps", "ForEachBody"}
