"""``smallest_effect``: the test split is large enough to show what the recipe wants to find."""

from conditions.champion_comparison import margins, row, signed
from conditions.check_table import GateCheck
from conditions.gate_check import Check, number, reaches
from conditions.gate_evidence import Compared


def powerful(compared: Compared, power: float, effect: float) -> Check:
    """Check that the test split is large enough to find an improvement of ``effect``.

    The smallest improvement that superiority would find with this power is at most ``effect``.
    """
    smallest = number(compared.improvement.detectable(power))
    needed = "" if smallest is None else f" about {(smallest / effect) ** 2:.1f} times the groups"
    passed = smallest is not None and reaches(effect, smallest)
    shown = "none" if smallest is None else f"{smallest:.3g}"
    shortage = "" if passed else f": it takes{needed or ' more groups'}"
    return row(
        POWER,
        compared,
        effect,
        value=smallest,
        passed=passed,
        reason=f"the smallest improvement of {compared.metric} that the test split shows with "
        f"power {power:g} is {shown}, the recipe demands at most {effect:g}{shortage}",
    )


POWER: GateCheck = GateCheck(
    kind="power",
    fields=(
        margins(
            "smallest_effect",
            "Metric → an improvement that the test split must be large enough to show, with "
            "``power``.",
            gt=0,
        ),
    ),
    judge=lambda evidence, demands: (
        powerful(evidence.compared[metric], demands["power"], effect)
        for metric, effect in demands["smallest_effect"].items()
    ),
    needs=frozenset({"scores", "champion"}),
    expected=lambda demands: signed(POWER, demands, 1),
    name="power_{metric}",
    picture="budgets",
    label="detectable {metric}",
    order=140,
    shown=100,
)
CHECKS = (POWER,)
