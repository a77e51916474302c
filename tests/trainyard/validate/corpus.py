"""Every seeded fault, and which of them validation catches.

python -m tests.trainyard.validate.corpus
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pipelines.validate import of_recipe
from tests.pipelines.rules.recipe_faults import RECIPE_FAULTS, RecipeFault
from tests.trainyard.validate import corpus_generated, corpus_references, corpus_shapes
from tests.trainyard.validate.corpus_generated import Generated
from tests.trainyard.validate.faults import Fault
from tests.trainyard.validate.rules.faults import FAULTS as OF_RULES
from trainyard.validate import Finding, check


@dataclass(frozen=True, slots=True)
class OfRule:
    """A fault of the rules table, in the form of the others."""

    name: str
    rule: str
    path: str
    body: str

    def found(self) -> list[Finding]:
        return check(self.body)

    def caught(self) -> bool:
        return any(finding.rule == self.rule for finding in self.found())


@dataclass(frozen=True, slots=True)
class OfRecipe:
    """A mistake in a recipe; ``test_recipes`` has them all tested, quicker than one by one."""

    fault: RecipeFault

    @property
    def name(self) -> str:
        return f"{self.fault.recipe} {' '.join(self.fault.overrides)}"

    @property
    def rule(self) -> str:
        return self.fault.rule or "recipe"

    @property
    def path(self) -> str:
        return self.fault.field

    def found(self) -> list[Finding]:
        return of_recipe(Path(f"recipes/{self.fault.recipe}.yaml"), self.fault.overrides)[1]

    def caught(self) -> bool:
        hits = [finding for finding in self.found() if finding.rule == self.rule]
        return any(self.path in f"{hit.path} {hit.problem}" for hit in hits)


LISTS: dict[str, list[Fault | Generated | OfRule]] = {
    "form": corpus_shapes.FORM,
    "step fields": corpus_shapes.FIELDS,
    "arguments": corpus_shapes.ARGUMENTS,
    "references": corpus_references.REFERENCES,
    "conditions": corpus_references.CONDITIONS,
    "quotas": corpus_references.QUOTAS,
    "rules table": [OfRule(f.name, f.rule, "", json.dumps(f.apply())) for f in OF_RULES],
    "generated": corpus_generated.FAULTS,
}
"""Further lists of faults are added here: what has ``name``, ``rule``, ``found`` and ``caught``."""


def main() -> None:
    """Print a table, and every fault that was not caught, with what was said instead."""
    total = Counter[str]()
    recipes = [OfRecipe(fault) for fault in RECIPE_FAULTS]
    for name, faults in {**LISTS, "recipes": recipes}.items():
        caught = [fault.caught() for fault in faults]
        total.update(faults=len(faults), caught=sum(caught))
        rules = len({fault.rule for fault in faults})
        print(f"{name:12} {len(faults):4} faults of {rules:2} rules, {sum(caught):4} caught")
        for fault, hit in zip(faults, caught, strict=True):
            if not hit:
                said = [f"{f.rule} {f.path}" for f in fault.found()]
                print(f"    not caught: {fault.name} ({fault.rule} at {fault.path}); said: {said}")
    print(f"{'all':12} {total['faults']:4} faults, {total['caught']:4} caught")


if __name__ == "__main__":
    main()
