"""Write the JSON Schema of recipes, by which editors complete and check them: recipes/schema.json.

python -m pipelines.recipe.schema     writes it again after a change of a field

It describes each field by itself. Checks across fields happen only when a recipe is read.
"""

import json
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from pipelines.recipe import environments
from pipelines.recipe.config import Recipe, Workload
from steps.gate.config import GateConfig
from training import workloads
from training.workloads import spec
from trainyard.common import atomic_file

FILE = Path(__file__).resolve().parents[2] / "recipes/schema.json"
LINE = "# yaml-language-server: $schema=schema.json"
"""First line of a recipe beside the schema."""
REF = "#/$defs/{model}"


def schema() -> dict[str, Any]:
    """Return the schema as a JSON tree."""
    tree = Recipe.model_json_schema(ref_template=REF)
    tree["$defs"] |= {name: form for each in shipped() for name, form in _settings(each)[1].items()}
    tree["$defs"][Workload.__name__]["allOf"] = [
        _where(name, {"config": _settings(name)[0]}) for name in shipped()
    ]
    gate = tree["$defs"][GateConfig.__name__]
    # null: declared checks match the pattern too, and null leaves one out
    gate["patternProperties"] = {"^(max|min)_[a-z0-9_]+$": {"type": ["number", "null"]}}
    gate["additionalProperties"] = False
    tree["properties"][environments.FIELD] = environments.schema()
    tree["allOf"] = [_thresholds(name) for name in shipped()]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | _plain(tree)


def shipped() -> list[str]:
    """Return the names of the workloads that ship with Trainyard."""
    return sorted(module.name for module in iter_modules(workloads.__path__) if module.ispkg)


def text() -> str:
    """Return the text of the schema's file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _settings(workload: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a workload's settings, and the definitions it refers to."""
    config = spec(workload).config
    tree = config.model_json_schema(ref_template=REF)
    inner = tree.pop("$defs", {})
    return {"$ref": REF.format(model=config.__name__)}, {**inner, config.__name__: tree}


def _where(workload: str, then: dict[str, Any]) -> dict[str, Any]:
    """Return the condition that gives properties their schema for this workload; the default
    workload needs no name.
    """
    named: dict[str, Any] = {"properties": {"name": {"const": workload}}}
    if workload != Workload.model_fields["name"].default:
        named["required"] = ["name"]
    return {"if": named, "then": {"properties": then}}


def _thresholds(workload: str) -> dict[str, Any]:
    """Return the ceilings and floors that the gate can set for the workload's metrics."""
    known = {
        f"{bound}_{metric}": {
            "type": "number",
            "description": f"{words} {metric} on the test split, in its own unit; {better} is "
            "better.",
        }
        for metric, better in spec(workload).metrics.items()
        for bound, words in (("max", "At most so large is"), ("min", "At least so large is"))
    }
    named = _where(workload, {})["if"]
    condition: dict[str, Any] = {"properties": {"workload": named}}
    if "required" in named:
        condition["required"] = ["workload"]
    return {"if": condition, "then": {"properties": {"gate": {"properties": known}}}}


def _plain(tree: Any, name: bool = False) -> Any:
    """Strip generated titles and defaults of whole sections; put texts on one line.

    ``name``: whether the keys are names of fields, not keywords of JSON Schema.
    """
    if isinstance(tree, list):
        return [_plain(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if name:
        return {key: _plain(value) for key, value in tree.items()}
    kept = {
        key: _plain(value, key in ("properties", "$defs", "patternProperties"))
        for key, value in tree.items()
        if key != "title" and not (key == "default" and isinstance(value, dict))
    }
    if isinstance(description := kept.get("description"), str):
        kept["description"] = " ".join(description.split())
    return kept


if __name__ == "__main__":
    atomic_file.write(FILE, text())
    print(f"{FILE}: written")
