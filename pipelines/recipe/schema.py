"""Write the JSON Schema of recipes, with which editors check them: recipes/schema.json.

python -m pipelines.recipe.schema     writes it again after a change of a field

It describes each field separately. Checks across fields happen only when a recipe is read.
"""

import json
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from pipelines.recipe import environments
from pipelines.recipe.config import Recipe, Workload
from steps.gate.config import GateConfig
from training import workloads
from training.workloads import load_spec
from trainyard.common import atomic_file

FILE = Path(__file__).resolve().parents[2] / "recipes/schema.json"
LINE = "# yaml-language-server: $schema=schema.json"
"""First line of a recipe that is in the folder of the schema."""
REF = "#/$defs/{model}"


def build_schema() -> dict[str, Any]:
    """Return the schema as a JSON tree."""
    tree = Recipe.model_json_schema(ref_template=REF)
    tree["$defs"] |= {
        name: form
        for workload in list_workloads()
        for name, form in _build_settings_schema(workload)[1].items()
    }
    tree["$defs"][Workload.__name__]["allOf"] = [
        _match_workload(name, {"config": _build_settings_schema(name)[0]})
        for name in list_workloads()
    ]
    gate = tree["$defs"][GateConfig.__name__]
    # null, because declared checks match the pattern, too, and null switches one off.
    gate["patternProperties"] = {"^(max|min)_[a-z0-9_]+$": {"type": ["number", "null"]}}
    gate["additionalProperties"] = False
    tree["properties"][environments.FIELD] = environments.build_environments_schema()
    tree["allOf"] = [_build_threshold_schema(name) for name in list_workloads()]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | _simplify_schema(tree)


def list_workloads() -> list[str]:
    """Return the names of the workloads that ship with Trainyard."""
    return sorted(module.name for module in iter_modules(workloads.__path__) if module.ispkg)


def render_schema() -> str:
    """Return the text of the schema's file."""
    return json.dumps(build_schema(), indent=1, ensure_ascii=False) + "\n"


def _build_settings_schema(workload: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a workload's settings, and the definitions it refers to."""
    config = load_spec(workload).config
    tree = config.model_json_schema(ref_template=REF)
    inner = tree.pop("$defs", {})
    return {"$ref": REF.format(model=config.__name__)}, {**inner, config.__name__: tree}


def _match_workload(workload: str, then: dict[str, Any]) -> dict[str, Any]:
    """Return the condition that gives properties their schema if the recipe has this workload.

    The default workload needs no name.
    """
    condition: dict[str, Any] = {"properties": {"name": {"const": workload}}}
    if workload != Workload.model_fields["name"].default:
        condition["required"] = ["name"]
    return {"if": condition, "then": {"properties": then}}


def _build_threshold_schema(workload: str) -> dict[str, Any]:
    """Return the schema of the limits that the gate can set on the workload's metrics."""
    threshold_schemas = {
        f"{bound}_{metric}": {
            "type": "number",
            "description": f"{words} {metric} on the test split, in its own unit; {better} is "
            "better.",
        }
        for metric, better in load_spec(workload).metrics.items()
        for bound, words in (("max", "Upper limit of"), ("min", "Lower limit of"))
    }
    workload_condition = _match_workload(workload, {})["if"]
    condition: dict[str, Any] = {"properties": {"workload": workload_condition}}
    if "required" in workload_condition:
        condition["required"] = ["workload"]
    return {"if": condition, "then": {"properties": {"gate": {"properties": threshold_schemas}}}}


def _simplify_schema(tree: Any, name: bool = False) -> Any:
    """Return the tree without generated titles and defaults of whole sections, with texts on one
    line.

    ``name``: whether the keys are names of fields, not keywords of JSON Schema.
    """
    if isinstance(tree, list):
        return [_simplify_schema(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if name:
        return {key: _simplify_schema(value) for key, value in tree.items()}
    result = {
        key: _simplify_schema(value, key in ("properties", "$defs", "patternProperties"))
        for key, value in tree.items()
        if key != "title" and not (key == "default" and isinstance(value, dict))
    }
    if isinstance(description := result.get("description"), str):
        result["description"] = " ".join(description.split())
    return result


if __name__ == "__main__":
    atomic_file.write_file(FILE, render_schema())
    print(f"{FILE}: written")
