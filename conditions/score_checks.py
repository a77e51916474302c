"""All checks of the scores of single examples: read them, compare, judge."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conditions.champion import NONE, UNRESOLVED
from conditions.check import Check, measured
from conditions.comparison import Compared
from conditions.demands import Demands, undecided
from conditions.group_sums import GroupSums, Wanted
from conditions.paired import improvement
from conditions.score_reader import read
from conditions.slices import Slice
from conditions.table import Evidence
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


def judge(folder: Path, evaluation: Any, demands: Demands) -> ScoreChecks:
    """Every check of ``demands`` that needs the scores, which lie in ``folder``.

    Whatever is wrong with the evidence fails every check that needs it, with one reason.
    """
    champion = demands.champion
    if champion == UNRESOLVED and demands.compared:
        return _undecided(demands, UNRESOLVED_CHAMPION)
    if demands.look < 1 and champion != NONE and demands.compared:
        return _undecided(demands, UNCOUNTED)
    try:
        _refuse_other_champion(evaluation, demands)
        sums = read(folder, _wanted(demands))
        _refuse_disagreement(evaluation, sums, has_champion=champion != NONE)
    except GateError as error:
        return _undecided(demands, str(error))
    evidence = Evidence(evaluation=evaluation, sums=sums)
    return ScoreChecks(
        checks=_made(evidence, demands),
        slices=evidence.slices,
        examples=sums.examples,
        groups=sums.groups,
        champion_artifact_sha256=_text(sums.champion_description.get("artifact_sha256")),
    )


def _made(evidence: Evidence, demands: Demands) -> list[Check]:
    """Each check's rows; without a champion the recipe's policy stands for the comparisons."""
    found = demands.of_scores
    if demands.champion != NONE:
        evidence.compared = {
            metric: compared(evidence.sums, metric, demands.limits_at)
            for metric in demands.compared
        }
        return [row for check in found for row in check.judge(evidence, demands)]
    alone = [check for check in found if "champion" not in check.needs]
    checks = [row for check in alone for row in check.judge(evidence, demands)]
    policy = demands["cold_start"]
    return checks + undecided(
        demands, COLD_START.format(policy), passed=policy == "pass", compared_only=True
    )


def _undecided(demands: Demands, reason: str) -> ScoreChecks:
    return ScoreChecks(checks=undecided(demands, reason, passed=False, compared_only=False))


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


def _wanted(demands: Demands) -> Wanted:
    needs = {need for check in demands.of_scores for need in check.needs}
    champion = None if demands.champion in (NONE, UNRESOLVED) else demands.champion
    return Wanted(
        metrics={metric: demands.directions[metric] for metric in demands.compared},
        champion=champion,
        slices="slices" in needs and demands.champion != NONE,
        calibration="predictions" in needs,
    )


def _refuse_other_champion(evaluation: Any, demands: Demands) -> None:
    """Evaluate and Gate were given the same champion."""
    champion = demands.champion
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


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
