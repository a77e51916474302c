"""Whom a verdict rests on, and whether that is today's champion."""

from conditions.champion import NONE, UNRESOLVED
from pipelines.verify.evidence import Absent, Evidence
from trainyard.common.errors import GateError

NOBODY = (NONE, UNRESOLVED, None)


def compared_with(evidence: Evidence) -> str | None:
    """The champion that the verdict rests on: an ARN or ``none``; None when it rests on none."""
    try:
        gate = evidence.json(evidence.source("Constraints")["S3Uri"])
        evaluation = evidence.json(evidence.source("Statistics")["S3Uri"])
    except Absent as why:
        raise GateError(f"{evidence.arn}: not approved: {why}") from None
    told = evaluation.get("champion")
    found = gate.get("champion") or (told.get("arn") if isinstance(told, dict) else None)
    return None if found == UNRESOLVED else found


def check_champion(arn: str, judged: str | None, champion: str | None) -> None:
    """``judged``: whom the verdict rests on; ``champion``: who it is now."""
    if judged is None or judged == champion or (judged in NOBODY and champion is None):
        return
    now = champion or "none: it was rejected, or deleted"
    raise GateError(
        f"{arn}: not approved: the champion has moved since the verdict. The gate compared with "
        f"{judged}, the champion is now {now}; start the pipeline again, so that the gate compares "
        "with that one"
    )


def check_champions_model(evidence: Evidence, judged: str | None) -> None:
    """The model that was scored as the champion's is the one that the registry has approved."""
    if judged is None or judged in NOBODY:
        return
    champion = Evidence(judged)
    used, expected = evidence.parameters["ChampionModelUri"], champion.model
    told = evidence.json(evidence.source("Statistics")["S3Uri"])["champion"]
    scored = (told.get("artifact") or {}).get("sha256")
    recorded = champion.metadata.get("artifact_sha256") or champion.model_sha256()
    if told.get("artifact") and (used, scored) != (expected, recorded):
        raise GateError(
            f"{evidence.arn}: not approved: what was scored as champion {judged} is {used} "
            f"({scored}), the registry's is {expected} ({recorded}); start the pipeline again"
        )
