"""The one walk over a definition's steps."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainyard.language.definition_document import iter_entries, iter_steps
from trainyard.language.expressions import look_up_path

names = st.sampled_from("ABCDE")
junk = st.sampled_from(
    [None, 3, "A", [], {}, {"Name": "A"}, {"Name": "A", "Type": "Fail", "Arguments": 1}]
)


def steps(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Lists of steps in which ``inner`` is nested."""
    inside = st.lists(inner, max_size=3)
    condition = st.fixed_dictionaries({"IfSteps": inside, "ElseSteps": inside | st.none()})
    loop = st.fixed_dictionaries({"ForEachBody": inside})
    return st.builds(
        lambda name, given: {"Name": name, "Type": given[0], "Arguments": given[1]},
        names,
        st.tuples(st.just("Condition"), condition) | st.tuples(st.just("ForEach"), loop),
    )


leaves = st.builds(lambda name: {"Name": name, "Type": "Fail", "Arguments": {"x": 1}}, names)
lists = st.lists(st.recursive(leaves | junk, steps, max_leaves=12), max_size=5)


def every(value: Any) -> list[Any]:
    """Every object with the three members of a step, wherever it stands."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    here = [value] if isinstance(value, dict) and isinstance(value.get("Arguments"), dict) else []
    return here + [found for item in inside for found in every(item)]


@given(lists)
def test_every_step_is_met_once_where_its_path_says(documents: list) -> None:
    found = list(iter_steps(documents))
    met, there = ([json.dumps(one) for one in ones]
                  for ones in ([step.document for step in found], every(documents)))  # fmt: skip
    assert sorted(met) == sorted(there)
    for entry in iter_entries(documents):
        whole = {"Steps": documents}
        assert look_up_path(whole, entry.path.removeprefix("$."), "document") == entry.document


def test_a_nested_step_says_under_what_it_runs_and_waits_for_it() -> None:
    inner = {"Name": "C", "Type": "Fail", "Arguments": {"ErrorMessage": {"Get": "Steps.A.Arn"}}}
    loop = {"Name": "L", "Type": "ForEach", "Arguments": {"ForEachBody": [inner]}}
    verdict = {"Name": "V", "Type": "Condition", "Arguments": {"ElseSteps": [loop]}}
    after = {"Name": "Z", "Type": "Fail", "Arguments": {}, "DependsOn": ["V", {"Step": "L"}]}
    _, looped, step, last = iter_steps([verdict, after])
    assert (looped.branch, looped.loop) == (("V", False), None)
    assert (step.branch, step.loop) == (("V", False), "L")
    assert step.waits_for == ["A", "V", "L"]
    assert last.waits_for == ["V", "L"]
