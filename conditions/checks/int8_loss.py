"""``int8``: the model's int8 version is not worse than the model by the margin or more.

It is judged on the int8 version alone, which has to pass all other checks, too: else the model is
registered in full precision (``conditions.provenance_record``).
"""

from collections.abc import Iterator
from dataclasses import replace

from conditions.champion_comparison import above, margins, signed_margins
from conditions.check_table import Demands, GateCheck
from conditions.gate_check import Check, reaches
from conditions.gate_documents import Evidence


def _not_worse(evidence: Evidence, demands: Demands) -> Iterator[Check]:
    for metric, margin in demands["int8"].items():
        comparison, least = evidence.full[metric], demands["min_groups"]
        row, groups = (
            above(INT8, comparison, -margin, "the full model"),
            comparison.improvement.effective_groups,
        )
        few = f"int8: the test split has {groups:.6g} effective groups, the recipe demands {least}"
        enough = reaches(groups, least)
        yield row if enough else replace(row, passed=False, reason=few)


INT8: GateCheck = GateCheck(
    kind="int8",
    fields=(
        margins(
            "int8",
            "Metric → margin: the model is registered with int8 weights where these are shown to "
            "make it worse by less than that, and pass every other check; else in full precision.",
            ge=0,
        ),
    ),
    judge=_not_worse,
    needs=frozenset({"scores", "int8"}),
    expected_rows=lambda demands: signed_margins(INT8, demands, -1),
    direction="higher",
    name="int8_{metric}",
    limit="low above",
    order=115,
    display_order=115,
)
CHECKS = (INT8,)
