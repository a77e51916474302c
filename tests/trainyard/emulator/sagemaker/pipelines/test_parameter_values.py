"""Parameter values of an execution."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.pipelines.checked_definition import Parameter, convert, values
from trainyard.language.expressions import as_given

KINDS = {
    "String": st.text(),
    "Integer": st.integers(),
    "Float": st.floats(allow_nan=False, allow_infinity=False),
    "Boolean": st.booleans(),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_value_survives_being_given_as_text(kind: str, data: st.DataObject) -> None:
    value = data.draw(KINDS[kind])
    got = convert(Parameter("x", kind), as_given(value))
    assert got == value
    assert type(got) is type(value)


def test_defaults_fill_in_and_the_order_is_the_definitions() -> None:
    parameters = {p.name: p for p in (Parameter("a", "Integer", 1), Parameter("b", "String", "x"))}
    given_ = [{"Name": "b", "Value": "y"}]
    assert list(values(parameters, given_).items()) == [("a", 1), ("b", "y")]


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ([{"Name": "c", "Value": "1"}], r"unknown pipeline parameter 'c'; there are \['a', 'e'\]"),
        ([{"Name": "a", "Value": "1"}, {"Name": "a", "Value": "2"}], "given twice"),
        ([{"Name": "a", "Value": "1.5"}], "'a': '1.5' is not of type Integer"),
        ([{"Name": "a", "Value": "1"}, {"Name": "e", "Value": "z"}], "'z' is not one of"),
        ([], "'a' needs a value"),
    ],
)
def test_refused_values(given_: list[dict], message: str) -> None:
    parameters = {
        "a": Parameter("a", "Integer"),
        "e": Parameter("e", "String", "x", ("x", "y")),
    }
    with pytest.raises(ApiError, match=message):
        values(parameters, given_)


@pytest.mark.parametrize("text", ["nan", "inf", "", "1,5"])
def test_what_json_cannot_say_is_no_float(text: str) -> None:
    with pytest.raises(ApiError, match="is not of type Float"):
        convert(Parameter("x", "Float"), text)
