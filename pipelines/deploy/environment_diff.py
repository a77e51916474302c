"""Compare the definitions of two environments of a recipe, without asking AWS."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.text import Text

from pipelines.compile.compilation import CompiledPipeline
from pipelines.compile.provenance_asset import FOLDER, blank_record_name
from trainyard.plan.definition_diff import Change, Diff, compare
from trainyard.plan.deployed_pipeline import State
from trainyard.plan.plan_display import differences
from trainyard.terminal import console

ROOT = "s3://…"
"""Stands for the prefix that all of a pipeline lies under, which differs everywhere or nowhere."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two environments, and what is different in the second one."""

    names: tuple[str, str]
    diff: Diff

    @property
    def as_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"against": self.names[0], "environment": self.names[1], "diff": asdict(self.diff)}

    def show(self) -> None:
        """Print the differences, or that there are none."""
        before, now = self.names
        console.print(f"environment {now} against {before}", style="bold", highlight=False)
        console.print()
        lines = list(differences(self.diff)) or [Text("no difference")]
        for line in lines:
            console.print(line, highlight=False)


def compare_environments(before: CompiledPipeline, now: CompiledPipeline) -> Comparison:
    """Return what differs in ``now``: names, places, settings, steps, and the recipe's fields that
    no definition holds, such as those of the endpoint.

    The record that names commit and environment is left out: it differs always.
    """
    places = [
        (definition.name, definition.region, _root(definition)) for definition in (before, now)
    ]
    changes = tuple(
        Change(sign="~", path=path, old=old, new=new)
        for path, old, new in zip(("PipelineName", "Region", "Root"), *places, strict=True)
        if old != new
    )
    fields = before.recipe_fields, now.recipe_fields
    changes += tuple(
        Change(sign="~" if old and new else "+" if new else "-", path=path, old=old, new=new)
        for path in sorted({*fields[0], *fields[1]})
        if (old := fields[0].get(path)) != (new := fields[1].get(path))
    )
    diff = compare(_placeless(before), _placeless(now))
    names = (str(before.environment), str(now.environment))
    return Comparison(names, replace(diff, pipeline=(*changes, *diff.pipeline)))


def _root(definition: CompiledPipeline) -> str:
    """Return the URI that everything of the pipeline lies under."""
    asset = definition.assets[0]
    return f"s3://{asset.bucket}/{asset.prefix.removesuffix(f'/{FOLDER}')}"


def _placeless(definition: CompiledPipeline) -> State:
    body = blank_record_name(definition.body).replace(f"{_root(definition)}/", f"{ROOT}/")
    return replace(definition.state, definition=body)
