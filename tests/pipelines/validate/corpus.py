"""Every seeded fault, and which of them validation catches.

python -m tests.pipelines.validate.corpus
"""

from collections import Counter

from tests.pipelines.validate import corpus_generated, corpus_references, corpus_shapes
from tests.pipelines.validate.corpus_generated import Generated
from tests.pipelines.validate.faults import Fault

LISTS: dict[str, list[Fault | Generated]] = {
    "form": corpus_shapes.FORM,
    "step fields": corpus_shapes.FIELDS,
    "arguments": corpus_shapes.ARGUMENTS,
    "references": corpus_references.REFERENCES,
    "conditions": corpus_references.CONDITIONS,
    "quotas": corpus_references.QUOTAS,
    "generated": corpus_generated.FAULTS,
}
"""Further lists of faults are added here: what has ``name``, ``rule``, ``found`` and ``caught``."""


def main() -> None:
    """Print a table, and every fault that was not caught, with what was said instead."""
    total = Counter[str]()
    for name, faults in LISTS.items():
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
