"""The model card: AWS's schema, filled in by the run."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.test_definition import compile_recipe, steps
from trainyard.common.errors import DefinitionError


def fill_card(card: dict, value: object = 1.5) -> str:
    """The Join, with what a run would put there: numbers where nothing quotes them."""
    parts = card["Std:Join"]["Values"]
    assert card["Std:Join"]["On"] == ""
    return "".join(
        part if isinstance(part, str) else "s3://b/k" if parts[n - 1].endswith('"') else str(value)
        for n, part in enumerate(parts)
    )


@pytest.mark.parametrize("recipe", ["recipes/laptop.yaml", "recipes/flights.yaml"])
def test_the_card_is_of_awss_schema(recipe: str):
    """The SDK's shapes are made from AWS's model_card_schema.json; they ignore what they do not
    know, so the card must come through them whole.
    """
    from sagemaker.core.shapes.model_card_shapes import ModelCardContent

    quote = 'it is 5" wide \\ and says "no"'
    definition = compile_recipe(recipe, f"register.card.intended_uses={json.dumps(quote)}")
    card = steps(json.loads(definition.body))["Register"]["Arguments"]["ModelCard"]
    assert card["ModelCardStatus"] == "Draft"
    text = fill_card(card["ModelCardContent"])
    assert "\n" not in text and len(text) < 100_000  # the pattern and length of the API reference
    content = json.loads(text)
    assert ModelCardContent(**content).model_dump(mode="json", exclude_none=True) == content
    assert set(content["model_overview"]) == {"model_creator", "model_artifact"}
    assert content["intended_uses"]["intended_uses"] == quote
    [group] = content["evaluation_details"][0]["metric_groups"]
    assert {m["value"] for m in group["metric_data"]} == {1.5} and len(group["metric_data"]) == 4
    with pytest.raises(DefinitionError, match="shorten pipeline.name or aws.prefix"):
        compile_recipe(recipe, f"pipeline.name={'x' * 200}")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_document_without_variables_is_its_json(document):
    import pipelines.compile.quiet_sdk  # noqa: F401 - prepares the SDK: must come first
    from steps.register.step import join_json

    [text] = join_json(document).values
    assert json.loads(text) == document and "\n" not in text
