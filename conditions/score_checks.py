"""All checks of the scores of single examples: read them, compare, judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conditions.checks import Check, measured, number
from conditions.comparison import Compared, non_inferior, powerful, superior, widespread
from conditions.demands import NONE, UNRESOLVED, Demands, name_of, undecided
from conditions.group_sums import GroupSums, Wanted
from conditions.paired import improvement
from conditions.score_reader import read
from conditions.slices import Part, Slice, judge_slices
from trainyard.common.errors import GateError

AGREEMENT = 1e-3
"""Relative distance between a metric in evaluation.json and in the scores: sums in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChecks:
    """What the scores say."""

    checks: list[Check]
    slices: list[Slice] = field(default_factory=list)
    examples: int | None = None
    groups: int | None = None
    champion_artifact_sha256: str | None = None


def judge(folder: Path, evaluation: Any, demands: Demands, champion: str) -> ScoreChecks:
    """Every check of ``demands``. ``champion``: its ARN, ``none`` or ``unresolved``.

    Whatever is wrong with the evidence fails every check that needs it, with one reason.
    """
    if champion == UNRESOLVED and demands.compared:
        return ScoreChecks(
            checks=undecided(demands, UNRESOLVED_CHAMPION, passed=False, compared_only=False)
        )
    if demands.look < 1 and champion != NONE and demands.compared:
        return ScoreChecks(checks=undecided(demands, UNCOUNTED, passed=False, compared_only=False))
    try:
        _refuse_other_champion(evaluation, demands, champion)
        sums = read(folder, _wanted(demands, champion))
        _refuse_disagreement(evaluation, sums, has_champion=champion != NONE)
    except GateError as error:
        return ScoreChecks(checks=undecided(demands, str(error), passed=False, compared_only=False))
    checks = _sizes(sums, demands) + _calibration(sums, demands)
    found: list[Slice] = []
    if champion == NONE:
        passed = demands.cold_start == "pass"
        checks += undecided(demands, COLD_START.format(demands.cold_start), passed=passed,
                            compared_only=True)  # fmt: skip
    else:
        checks += _comparisons(sums, demands)
        for metric, margin in demands.slice_regression.items():
            check, judged = _slices(sums, demands, metric, margin)
            checks.append(check)
            found += judged
    return ScoreChecks(
        checks=checks,
        slices=found,
        examples=sums.examples,
        groups=sums.groups,
        champion_artifact_sha256=_text(sums.champion_description.get("artifact_sha256")),
    )


UNRESOLVED_CHAMPION = (
    "nobody looked for the champion in the registry: start the run with "
    "`python -m pipelines.start`, or give the parameters ChampionArn and ChampionModelUri"
)
UNCOUNTED = (
    "nobody counted the looks at this test split: start the run with `python -m pipelines.start`, "
    "which counts them in the ledger, or give the parameter Look"
)
COLD_START = (
    "there is no champion to compare with, so no comparison was made; the recipe's gate.cold_start "
    "decides: {}"
)


def _wanted(demands: Demands, champion: str) -> Wanted:
    return Wanted(
        metrics={metric: demands.directions[metric] for metric in demands.compared},
        champion=None if champion in (NONE, UNRESOLVED) else champion,
        slices=bool(demands.slice_regression) and champion != NONE,
        calibration=demands.max_calibration_error is not None,
    )


def _refuse_other_champion(evaluation: Any, demands: Demands, champion: str) -> None:
    """Evaluate and Gate were given the same champion."""
    told = evaluation.get("champion") if isinstance(evaluation, dict) else None
    arn = told.get("arn") if isinstance(told, dict) else None
    if demands.compared and (error := _text(told.get("error") if isinstance(told, dict) else None)):
        raise GateError(error)
    if demands.compared and arn != champion:
        raise GateError(f"the evaluation is of champion {arn}, the gate was given {champion}")


def _refuse_disagreement(evaluation: Any, sums: GroupSums, *, has_champion: bool) -> None:
    """The scores are those that evaluation.json sums up.

    Raises:
        GateError: another test split, another artifact, or other values of a metric.
    """
    described = sums.description
    pairs = [
        ("test split", described.get("test_fingerprint"), "dataset", "test_fingerprint"),
        ("artifact", described.get("artifact_sha256"), "artifact", "sha256"),
    ]
    for what, scored, *path in pairs:
        told = evaluation
        for key in path:
            told = told.get(key) if isinstance(told, dict) else None
        if _text(scored) is None or scored != told:
            raise GateError(f"the scores are of {what} {scored}, the evaluation of {told}")
    if has_champion:
        tested = sums.champion_description.get("test_fingerprint")
        if tested != described["test_fingerprint"]:
            raise GateError(f"the champion was scored on test split {tested}, not on this one")
    for metric, (challenger, champion, weight) in sums.totals.items():
        _refuse_other_value(metric, challenger / weight, evaluation, "metrics", metric, "value")
        if has_champion:
            path = ("champion", "metrics", metric, "value")
            _refuse_other_value(f"the champion's {metric}", champion / weight, evaluation, *path)


def _refuse_other_value(what: str, scored: float, evaluation: Any, *path: str) -> None:
    told = measured(evaluation, *path)
    near = told is not None and abs(told - scored) <= AGREEMENT * max(abs(told), abs(scored))
    if not near:
        shown = "missing" if told is None else f"{told:.6g}"
        raise GateError(f"{what} is {scored:.6g} by the scores, but {shown} in evaluation.json")


def _sizes(sums: GroupSums, demands: Demands) -> list[Check]:
    """``min_examples``: the test split has so many examples."""
    least = demands.min_examples
    return [] if least is None else [_at_least("examples", sums.examples, least)]


def _at_least(what: str, found: float, least: float) -> Check:
    return Check(
        kind="sample_size",
        name=name_of("sample_size", what),
        metric=what,
        direction="higher",
        value=number(found),
        threshold=least,
        passed=found >= least,
        reason=f"the test split has {found:.6g} {what.replace('_', ' ')}, the recipe demands at "
        f"least {least:g}",
    )


def _calibration(sums: GroupSums, demands: Demands) -> list[Check]:
    """``max_calibration_error``: its upper limit is at most that."""
    most = demands.max_calibration_error
    if most is None:
        return []
    value, high = sums.calibration.error(demands.confidence)
    return [
        Check(
            kind="calibration",
            name=name_of("calibration", "calibration_error"),
            metric="calibration_error",
            direction="lower",
            value=value,
            high=high,
            confidence=demands.confidence,
            threshold=most,
            passed=high <= most,
            reason=f"the calibration error is {value:.4g}, with {demands.confidence:g} confidence "
            f"at most {high:.4g}; the recipe demands at most {most:g}",
        )
    ]


def _comparisons(sums: GroupSums, demands: Demands) -> list[Check]:
    of = {metric: compared(sums, metric, demands.limits_at) for metric in demands.compared}
    groups = min(found.improvement.effective_groups for found in of.values())
    return [
        _at_least("effective_groups", groups, demands.min_groups),
        *(non_inferior(of[m], margin) for m, margin in demands.non_inferiority.items()),
        *(superior(of[m], margin) for m, margin in demands.superiority.items()),
        *(powerful(of[m], demands.power, e) for m, e in demands.smallest_effect.items()),
        *_influence(of, demands),
    ]


def _influence(of: Mapping[str, Compared], demands: Demands) -> list[Check]:
    """``max_group_influence``: on no metric has one group a larger share of the variance."""
    most = demands.max_group_influence
    return [] if most is None else [widespread(one, most) for one in of.values()]


def compared(sums: GroupSums, metric: str, confidence: float) -> Compared:
    """The two models on one metric, as far as the scores know them."""
    challenger, champion, weight = sums.totals[metric]
    return Compared(
        metric=metric,
        challenger=challenger / weight,
        champion=champion / weight,
        improvement=improvement(
            *sums.of_groups(metric), confidence, in_order=sums.starts is not None
        ),
        confidence=confidence,
        in_order=sums.starts is not None,
    )


def _slices(
    sums: GroupSums, demands: Demands, metric: str, margin: float
) -> tuple[Check, list[Slice]]:
    parts = []
    for (column, value), place in sums.slices.items():
        difference, weight = sums.of_slice(metric, column, value)
        examples = int(sums.slice_examples[place])
        parts.append(
            Part(slice=f"{column}={value}", examples=examples, difference=difference, weight=weight)
        )
    return judge_slices(
        parts,
        metric,
        margin,
        confidence=demands.confidence,
        min_examples=demands.min_slice_examples,
        min_groups=demands.min_slice_groups,
        in_order=sums.starts is not None,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
