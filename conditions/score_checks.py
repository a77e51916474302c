"""Checks of the scores of single examples: read them, compare, judge."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conditions.check_table import GateCheck, compared_metrics, rows_of
from conditions.demands import Demands
from conditions.gate_check import AgainstBaseline, Check, Direction, Slice, measured, number
from conditions.gate_evidence import Compared, Evidence
from conditions.improvement import improvement
from conditions.no_champion import NONE, UNRESOLVED
from conditions.score_tables import BASELINE, ScoreTables, TableRequest, read
from trainyard.common.errors import GateError

AGREEMENT = 1e-3
"""Relative distance between a metric in evaluation.json and in the scores: sums in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChecks:
    """Results of the checks of the scores."""

    checks: list[Check]
    slices: list[Slice] = field(default_factory=list)
    examples: int | None = None
    groups: int | None = None
    champion_artifact_sha256: str | None = None
    baselines: list[AgainstBaseline] = field(default_factory=list)


def judge(folder: Path, evaluation: Any, demands: Demands) -> ScoreChecks:
    """Judge every check of ``demands`` that needs the scores, which lie in ``folder``.

    Any fault of the evidence fails every check that needs it, with one reason.
    """
    champion, compares = demands.champion, _compares(demands)
    if champion == UNRESOLVED and compares:
        return _undecided(demands, UNRESOLVED_CHAMPION)
    if demands.look < 1 and champion != NONE and compares:
        return _undecided(demands, UNCOUNTED)
    try:
        _refuse_other_champion(evaluation, demands)
        sums = read(folder, _table_request(demands))
        _refuse_disagreement(evaluation, sums, has_champion=champion != NONE)
        baselines = list(_against_baselines(folder, evaluation, sums, demands))
        full = _against_full(folder, evaluation, demands) if demands["int8"] else {}
        evidence = Evidence(evaluation=evaluation, scores=sums, full=full)
        checks = _made(evidence, demands)
    except GateError as error:
        return _undecided(demands, str(error))
    return ScoreChecks(
        checks=checks,
        slices=evidence.slices,
        examples=sums.examples,
        groups=sums.groups,
        champion_artifact_sha256=_text(sums.other_description.get("artifact_sha256")),
        baselines=baselines,
    )


def _made(evidence: Evidence, demands: Demands) -> list[Check]:
    """Return each check's rows; without a champion the recipe's policy decides the comparisons."""
    found = of_scores(demands)
    if demands.champion != NONE:
        evidence.compared = {
            metric: compared(evidence.sums, metric, demands.limits_at)
            for metric in compared_metrics(demands.values)
        }
        return [row for check in found for row in check.made(evidence, demands)]
    alone = [check for check in found if "champion" not in check.needs]
    checks = [row for check in alone for row in check.made(evidence, demands)]
    policy = demands["cold_start"]
    return checks + undecided(
        demands, COLD_START.format(policy), passed=policy == "pass", compared_only=True
    )


def of_scores(demands: Demands) -> list[GateCheck]:
    """Return the checks that need the scores of single examples."""
    return [check for check in rows_of(demands) if "scores" in check.needs]


def _compares(demands: Demands) -> bool:
    return any({"champion", "int8"} & check.needs for check in of_scores(demands))


def undecided(demands: Demands, reason: str, *, passed: bool, compared_only: bool) -> list[Check]:
    """Return rows of every check of the scores, none of which could be judged, for the same reason.

    ``compared_only``: only checks against the champion. The rows keep the order that they have
    always had in gate.json, those against the champion first.
    """
    asked = of_scores(demands)
    against = [check for check in asked if "champion" in check.needs]
    found = sorted(against, key=lambda check: check.shown)
    if not compared_only:
        found += [check for check in reversed(asked) if check not in against]
    return [row for check in found for row in check.unmade(demands, passed=passed, reason=reason)]


def _undecided(demands: Demands, reason: str) -> ScoreChecks:
    return ScoreChecks(checks=undecided(demands, reason, passed=False, compared_only=False))


UNRESOLVED_CHAMPION = (
    "the champion was not looked up in the registry: start the run with "
    "`python -m pipelines.start`, or give the parameters ChampionArn and ChampionModelUri"
)
UNCOUNTED = (
    "the looks at this test split were not counted: start the run with "
    "`python -m pipelines.start`, which counts them in the ledger, or give the parameter Look"
)
COLD_START = (
    "there is no champion to compare with, so nothing was compared; the recipe's gate.cold_start "
    "decides: {}"
)


def _table_request(demands: Demands) -> TableRequest:
    needs = {need for check in of_scores(demands) for need in check.needs}
    champion = None if demands.champion in (NONE, UNRESOLVED) else demands.champion
    metrics = compared_metrics(demands.values)
    return TableRequest(
        metrics={metric: demands.directions[metric] for metric in metrics},
        champion=champion,
        model=demands.model,
        slices="slices" in needs and demands.champion != NONE,
        calibration="predictions" in needs,
        **_declared(demands),
    )


def _declared(demands: Demands) -> dict[str, Any]:
    """Return the fields of ``TableRequest`` that every comparison has."""
    level = 1 - demands.limits_at
    return {"range": demands["range"], "clip": demands["clip"], "level": level}


def _refuse_other_champion(evaluation: Any, demands: Demands) -> None:
    """Check that Evaluate and Gate were given the same champion."""
    if not _compares(demands):
        return
    champion = evaluation.get("champion") if isinstance(evaluation, dict) else None
    known = champion if isinstance(champion, dict) else {}
    if error := _text(known.get("error")):
        raise GateError(error)
    if known.get("arn") != demands.champion:
        raise GateError(
            f"the evaluation is of champion {known.get('arn')}, the gate was given "
            f"{demands.champion}"
        )


def _refuse_disagreement(evaluation: Any, sums: ScoreTables, *, has_champion: bool) -> None:
    """Check that evaluation.json sums up these scores.

    Raises:
        GateError: another test split, another artifact, or other values of a metric.
    """
    described = sums.description
    pairs = [
        ("test split", described.get("test_fingerprint"), "dataset", "test_fingerprint"),
        ("artifact", described.get("artifact_sha256"), "artifact", "sha256"),
    ]
    for what, scored, *path in pairs:
        stated = evaluation
        for key in path:
            stated = stated.get(key) if isinstance(stated, dict) else None
        if _text(scored) is None or scored != stated:
            raise GateError(f"the scores are of {what} {scored}, the evaluation of {stated}")
    if has_champion:
        _refuse_other_split("the champion", sums)
    for metric, (challenger, champion, weight) in sums.totals.items():
        _refuse_other_value(metric, challenger / weight, evaluation, "metrics", metric, "value")
        if has_champion:
            where = ("champion", "metrics", metric, "value")
            _refuse_other_value(f"the champion's {metric}", champion / weight, evaluation, *where)


def _refuse_other_split(who: str, sums: ScoreTables) -> None:
    tested = sums.other_description.get("test_fingerprint")
    if tested != sums.description.get("test_fingerprint"):
        raise GateError(f"{who} was scored on test split {tested}, not on this one")


def _refuse_other_value(what: str, scored: float, evaluation: Any, *path: str) -> None:
    stated = measured(evaluation, *path)
    near = stated is not None and abs(stated - scored) <= AGREEMENT * max(abs(stated), abs(scored))
    if not near:
        shown = "missing" if stated is None else f"{stated:.6g}"
        raise GateError(f"{what} is {scored:.6g} by the scores, but {shown} in evaluation.json")


def _against_baselines(
    folder: Path, evaluation: Any, scores: ScoreTables, demands: Demands
) -> Iterator[AgainstBaseline]:
    """Compare the model with each baseline that has scores, on every metric that they have.

    The limits are those of a comparison with a champion. They do not count as a look: they decide
    nothing.

    Raises:
        GateError: a baseline's scores are damaged, of other examples, or not what the evaluation
            sums up.
    """
    directions = scores.description.get("metrics")
    stated: dict[str, Direction] = {
        metric: direction
        for metric, direction in (directions if isinstance(directions, dict) else {}).items()
        if direction in ("lower", "higher")
    }
    for path in sorted(folder.glob(f"{BASELINE}*.parquet")):
        name = path.stem.removeprefix(BASELINE)
        wanted = TableRequest(
            metrics=stated,
            champion=None,
            model=demands.model,
            baseline=name,
            **_declared(demands),
        )
        sums = read(folder, wanted)
        _refuse_other_split(f"baseline {name}", sums)
        for metric in wanted.metrics:
            found = compared(sums, metric, demands["confidence"])
            where = ("baselines", name, metric)
            _refuse_other_value(f"{name}'s {metric}", found.champion, evaluation, *where)
            yield _against(name, found, stated[metric])


def _against_full(folder: Path, evaluation: Any, demands: Demands) -> dict[str, Compared]:
    """Compare the int8 version with the full model, on the metrics that have a margin.

    Raises:
        GateError: the full model's scores are damaged, of other examples or of another artifact, or
            not what the evaluation sums up.
    """
    metrics = {metric: demands.directions[metric] for metric in demands["int8"]}
    common = _declared(demands)
    wanted = TableRequest(metrics=metrics, champion=None, model=demands.model, full=True, **common)
    sums = read(folder, wanted)
    _refuse_other_split("the full model", sums)
    scored, full = sums.other_description.get("artifact_sha256"), evaluation["full"]
    if not isinstance(full["artifact"], dict) or scored != full["artifact"].get("sha256"):
        raise GateError(f"challenger.parquet is of artifact {scored}, not of the full model")
    found = {metric: compared(sums, metric, demands.limits_at) for metric in metrics}
    for metric, one in found.items():
        _refuse_other_value(
            f"the full model's {metric}", one.champion, full, "metrics", metric, "value"
        )
    return found


def _against(name: str, found: Compared, direction: Direction) -> AgainstBaseline:
    return AgainstBaseline(
        baseline=name,
        metric=found.metric,
        direction=direction,
        model=found.challenger,
        other=found.champion,
        value=found.improvement.value,
        low=number(found.improvement.low),
        high=number(found.improvement.high),
        confidence=found.confidence,
        effective_groups=found.improvement.effective_groups,
    )


def compared(sums: ScoreTables, metric: str, confidence: float) -> Compared:
    """Return the comparison of the two models on one metric, as far as the scores show it."""
    own, other, weight = sums.totals[metric]
    return Compared(
        metric=metric,
        challenger=own / weight,
        champion=other / weight,
        improvement=improvement(sums.group_sums(metric), confidence),
        confidence=confidence,
        in_order=sums.in_order,
        likeness=sums.neighbours_alike(metric),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
