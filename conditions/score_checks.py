"""Run the checks that need the scores of single examples: read them, compare, judge."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conditions.check_table import Demands, GateCheck, list_compared_metrics, select_demanded_checks
from conditions.gate_check import Check, Slice, find_number
from conditions.gate_documents import Evidence, MetricComparison
from conditions.improvement import estimate_improvement
from conditions.no_champion import NONE, UNRESOLVED_ARN
from conditions.score_tables import BASELINE, CHAMPION, ScoreTables, TableRequest, read_score_tables
from trainyard.common.errors import GateError

AGREEMENT = 1e-3
"""Allowed relative difference between a metric in evaluation.json and in the scores. They differ
because sums are in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChecks:
    """Results of the checks that need the scores."""

    checks: list[Check]
    slices: list[Slice] = field(default_factory=list)
    examples: int | None = None
    groups: int | None = None
    champion_artifact_sha256: str | None = None


def run_score_checks(folder: Path, evaluation: Any, demands: Demands) -> ScoreChecks:
    """Run every check of ``demands`` that needs the scores; ``folder`` contains the scores.

    If the evidence is faulty, every check that needs it fails with the same reason.
    """
    champion, compares = demands.champion, _compares_with_champion(demands)
    if champion == UNRESOLVED_ARN and compares:
        return _make_failed_checks(demands, UNRESOLVED_CHAMPION)
    if demands.look_number < 1 and champion != NONE and compares:
        return _make_failed_checks(demands, UNCOUNTED_LOOK)
    try:
        _refuse_other_champion(evaluation, demands)
        sums = read_score_tables(folder, _build_table_request(demands))
        _refuse_disagreement(evaluation, sums, has_champion=champion != NONE)
        _refuse_bad_baselines(folder, evaluation, sums)
        evidence = Evidence(evaluation=evaluation, scores=sums)
        checks = _make_rows(evidence, demands)
    except GateError as error:
        return _make_failed_checks(demands, str(error))
    return ScoreChecks(
        checks=checks,
        slices=evidence.slices,
        examples=sums.examples,
        groups=sums.groups,
        champion_artifact_sha256=_to_text(sums.other_description.get("artifact_sha256")),
    )


def _make_rows(evidence: Evidence, demands: Demands) -> list[Check]:
    """Return each check's rows. Without a champion, the recipe's policy decides the comparisons."""
    score_checks = select_score_checks(demands)
    if demands.champion != NONE:
        evidence.comparisons = {
            metric: compare_metric(evidence.sums, metric, demands.limits_confidence)
            for metric in list_compared_metrics(demands.values)
        }
        return [row for check in score_checks for row in check.compute_rows(evidence, demands)]
    own_checks = [check for check in score_checks if "champion" not in check.needs]
    checks = [row for check in own_checks for row in check.compute_rows(evidence, demands)]
    policy = demands["cold_start"]
    return checks + make_undecided_rows(
        demands, COLD_START.format(policy), is_pass=policy == "pass", compared_only=True
    )


def select_score_checks(demands: Demands) -> list[GateCheck]:
    """Return the checks that need the scores of single examples."""
    return [check for check in select_demanded_checks(demands) if "scores" in check.needs]


def _compares_with_champion(demands: Demands) -> bool:
    """Return whether any check compares with a champion."""
    return any("champion" in check.needs for check in select_score_checks(demands))


def make_undecided_rows(
    demands: Demands, reason: str, *, is_pass: bool, compared_only: bool
) -> list[Check]:
    """Return the rows of all checks that need the scores if none can be computed.

    All get the same reason. ``compared_only``: only checks against the champion. The rows have
    the order of gate.json: first those against the champion.
    """
    score_checks = select_score_checks(demands)
    champion_checks = [check for check in score_checks if "champion" in check.needs]
    sorted_checks = sorted(champion_checks, key=lambda check: check.display_order)
    if not compared_only:
        sorted_checks += [check for check in reversed(score_checks) if check not in champion_checks]
    return [
        row
        for check in sorted_checks
        for row in check.build_rows_without_scores(demands, is_pass=is_pass, reason=reason)
    ]


def _make_failed_checks(demands: Demands, reason: str) -> ScoreChecks:
    """Return failed rows of all checks that need the scores, all with the same reason."""
    return ScoreChecks(
        checks=make_undecided_rows(demands, reason, is_pass=False, compared_only=False)
    )


UNRESOLVED_CHAMPION = (
    "the champion was not looked up in the registry: start the run with "
    "`python -m pipelines.start`, or give the parameters ChampionArn and ChampionModelUri"
)
UNCOUNTED_LOOK = (
    "the looks at this test split were not counted: start the run with "
    "`python -m pipelines.start`, which counts them in the ledger, or give the parameter Look"
)
COLD_START = (
    "there is no champion to compare with, so nothing was compared; the recipe's gate.cold_start "
    "decides: {}"
)


def _build_table_request(demands: Demands) -> TableRequest:
    """Return the request for the parts of the score tables that the recipe's checks need."""
    needs = {need for check in select_score_checks(demands) for need in check.needs}
    champion = None if demands.champion in (NONE, UNRESOLVED_ARN) else demands.champion
    metrics = list_compared_metrics(demands.values)
    return TableRequest(
        metrics={metric: demands.directions[metric] for metric in metrics},
        champion=champion,
        other=CHAMPION if champion else None,
        slices="slices" in needs and demands.champion != NONE,
        calibration="predictions" in needs,
        range=demands["range"],
        clip=demands["clip"],
        level=1 - demands.limits_confidence,
    )


def _refuse_other_champion(evaluation: Any, demands: Demands) -> None:
    """Check that the Evaluate and Gate steps were given the same champion."""
    if not _compares_with_champion(demands):
        return
    champion = evaluation.get("champion") if isinstance(evaluation, dict) else None
    evaluated_champion = champion if isinstance(champion, dict) else {}
    if error := _to_text(evaluated_champion.get("error")):
        raise GateError(error)
    if evaluated_champion.get("arn") != demands.champion:
        raise GateError(
            f"the evaluation scored champion {evaluated_champion.get('arn')}, but the gate was "
            f"given {demands.champion}"
        )


def _refuse_disagreement(evaluation: Any, sums: ScoreTables, *, has_champion: bool) -> None:
    """Check that evaluation.json is a summary of these scores.

    Raises:
        GateError: the test split, the artifact or the value of a metric differs.
    """
    description = sums.description
    pairs = [
        ("test split", description.get("test_fingerprint"), "dataset", "test_fingerprint"),
        ("artifact", description.get("artifact_sha256"), "artifact", "sha256"),
    ]
    for label, scored_value, *path in pairs:
        stated_value = evaluation
        for key in path:
            stated_value = stated_value.get(key) if isinstance(stated_value, dict) else None
        if _to_text(scored_value) is None or scored_value != stated_value:
            raise GateError(
                f"the scores are of {label} {scored_value}, the evaluation of {stated_value}"
            )
    if has_champion:
        _refuse_other_split("the champion", sums)
    for metric, (challenger, champion, weight) in sums.totals.items():
        _refuse_other_value(metric, challenger / weight, evaluation, "metrics", metric, "value")
        if has_champion:
            value_path = ("champion", "metrics", metric, "value")
            _refuse_other_value(
                f"the champion's {metric}", champion / weight, evaluation, *value_path
            )


def _refuse_other_split(label: str, sums: ScoreTables) -> None:
    """Check that the second table was scored on the same test split as the model's table."""
    test_fingerprint = sums.other_description.get("test_fingerprint")
    if test_fingerprint != sums.description.get("test_fingerprint"):
        raise GateError(f"{label} was scored on test split {test_fingerprint}, not on this one")


def _refuse_bad_baselines(folder: Path, evaluation: Any, scores: ScoreTables) -> None:
    """Check that evaluation.json sums up the baselines' scores, of the same examples.

    Raises:
        GateError: a baseline's scores are damaged, or do not fit the others.
    """
    directions = scores.description.get("metrics")
    for path in sorted(folder.glob(f"{BASELINE}*.parquet")):
        metrics = directions if isinstance(directions, dict) else {}
        name = path.stem.removeprefix(BASELINE)
        sums = read_score_tables(
            folder, TableRequest(metrics=metrics, champion=None, other=path.stem)
        )
        _refuse_other_split(f"baseline {name}", sums)
        for metric, (_, total, weight) in sums.totals.items():
            value_path = ("baselines", name, metric)
            _refuse_other_value(f"{name}'s {metric}", total / weight, evaluation, *value_path)


def _refuse_other_value(label: str, scored_value: float, evaluation: Any, *path: str) -> None:
    """Check that a value from the scores agrees with the one at ``path`` in the evaluation."""
    stated_value = find_number(evaluation, *path)
    agrees = stated_value is not None and abs(stated_value - scored_value) <= AGREEMENT * max(
        abs(stated_value), abs(scored_value)
    )
    if not agrees:
        stated_text = "missing" if stated_value is None else f"{stated_value:.6g}"
        raise GateError(
            f"{label} is {scored_value:.6g} by the scores, but {stated_text} in evaluation.json"
        )


def compare_metric(sums: ScoreTables, metric: str, confidence: float) -> MetricComparison:
    """Return the comparison of the two models on one metric, computed from the scores."""
    own_total, other, weight = sums.totals[metric]
    return MetricComparison(
        metric=metric,
        challenger=own_total / weight,
        champion=other / weight,
        improvement=estimate_improvement(sums.compute_group_sums(metric), confidence),
        confidence=confidence,
        in_order=sums.in_order,
    )


def _to_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
