"""``max_group_influence``: no single group decides a comparison."""

from conditions.champion_comparison import row
from conditions.check_table import Field, GateCheck, Values, compared_metrics
from conditions.gate_check import Check, reaches
from conditions.gate_evidence import Compared


def widespread(found: Compared, most: float) -> Check:
    """Check that no single group has more than ``most`` of the improvement's variance.

    Where one has, the limits depend on something hardly known: how often such groups occur.
    """
    share = found.improvement.influence
    return row(
        INFLUENCE,
        found,
        most,
        value=share,
        passed=reaches(most, share),
        reason=f"one group has {share:.2g} of the variance of the improvement in "
        f"{found.metric}, the recipe allows at most {most:g}",
    )


def _declared(check: GateCheck, values: Values) -> bool:
    return values["max_group_influence"] is not None and bool(compared_metrics(values))


def _refuse(values: Values) -> str | None:
    if values["max_group_influence"] is None or compared_metrics(values):
        return None
    return (
        "gate.max_group_influence: there is no comparison with the champion whose variance a group "
        "could have; add one, such as superiority, or remove it"
    )


INFLUENCE: GateCheck = GateCheck(
    kind="influence",
    fields=(
        Field(
            name="max_group_influence",
            gt=0,
            lt=1,
            doc="Share of the variance of an improvement that a single group may have; with "
            "``superiority``, ``non_inferiority`` or another comparison. 0.5 refuses what one "
            "group decides.",
        ),
    ),
    judge=lambda evidence, demands: (
        widespread(found, demands["max_group_influence"]) for found in evidence.compared.values()
    ),
    declared=_declared,
    refuse=_refuse,
    needs=frozenset({"scores", "champion"}),
    expected=lambda demands: (
        (metric, demands["max_group_influence"]) for metric in compared_metrics(demands.values)
    ),
    name="influence_{metric}",
    order=150,
    shown=110,
)
CHECKS = (INFLUENCE,)
