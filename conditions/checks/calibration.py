"""``max_calibration_error``: a binary classifier's probabilities are calibrated."""

from conditions.check_table import Demands, Field, GateCheck
from conditions.gate_check import Check
from conditions.gate_documents import Evidence


def _judge_calibration(evidence: Evidence, demands: Demands) -> list[Check]:
    """Check that the upper limit of the calibration error is at most the recipe's limit."""
    limit, confidence = demands["max_calibration_error"], demands["confidence"]
    value, high = evidence.sums.measure_calibration(confidence)
    return [
        CALIBRATION.make_row(
            "calibration_error",
            limit,
            value=value,
            high=high,
            confidence=confidence,
            passed=high <= limit,
            reason=f"the calibration error is {value:.4g}, with {confidence:g} confidence at most "
            f"{high:.4g}; the recipe demands at most {limit:g}",
        )
    ]


CALIBRATION: GateCheck = GateCheck(
    kind="calibration",
    fields=(
        Field(
            name="max_calibration_error",
            gt=0,
            lt=1,
            doc="Upper limit of the expected calibration error of a binary classifier's "
            "probabilities.",
        ),
    ),
    judge=_judge_calibration,
    needs=frozenset({"scores", "predictions"}),
    expected_rows=lambda demands: [("calibration_error", demands["max_calibration_error"])],
    limit="high at most",
    picture="budgets",
    order=40,
    display_order=120,
)
CHECKS = (CALIBRATION,)
