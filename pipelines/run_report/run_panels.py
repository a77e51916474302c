"""Panels of a run's page that only our runs have: the gate, the test split, the training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.run_report.run_documents import (
    against,
    demanded,
    measured,
    read_evaluation,
    read_gate,
    read_metrics,
    read_training,
)
from pipelines.run_report.run_pictures import GATE_PICTURES, TRAINING_PICTURES, curves
from pipelines.run_report.search_results import (
    SHOWN,
    over_seeds,
    ranked,
    read_search,
    rounded,
    search_picture,
)
from pipelines.run_report.training_pace import read_pace
from trainyard.console.app_hooks import Panel, templates
from trainyard.console.outcomes import Outcome
from trainyard.runs.execution import Execution, Step
from trainyard.runs.training_speed import figure

Known = Mapping[str, Any]
TEMPLATES = templates(
    Path(__file__).parent,
    demanded=demanded,
    measured=measured,
    against=against,
    figure=figure,
    rounded=rounded,
)


def judge(execution: Execution, steps: Mapping[str, Step]) -> Outcome | None:
    """Return the gate's verdict, with the first metric that it judges beside the champion's."""
    if "Gate" not in steps or steps["Gate"].status != "Succeeded":
        return None
    if (gate := read_gate(execution, steps)) is None:
        return None
    values = gate.get("metrics") or {}
    metric = next((one["metric"] for one in gate["checks"] if one["metric"] in values), "")
    return Outcome(
        metric=metric,
        value=values.get(metric),
        champion=(gate.get("champion_metrics") or {}).get(metric),
        verdict=gate["verdict"],
    )


def _gate(known: Known) -> str:
    gate, evaluation = known["gate"], known["evaluation"]
    if not gate:
        return ""
    pictures = {name: draw(gate, evaluation) for name, draw in GATE_PICTURES.items()}
    return _filled("gate", gate=gate, pictures=pictures)


def _evaluation(known: Known) -> str:
    found = known["evaluation"]
    return _filled("evaluation", evaluation=found) if found else ""


def _search(known: Known) -> str:
    search = known["search"]
    if not search or not search["trials"]:
        return ""
    trials = search["trials"]
    best = ranked(trials)
    picture = search_picture(trials, best[0]["job"])
    return _filled(
        "search", picture=picture, trials=trials, names=[*trials[0]["values"]], best=best[:SHOWN],
        seeds=over_seeds(trials),
    )  # fmt: skip


def _training(known: Known) -> str:
    drawn = {what: draw(known["training"]) for what, draw in TRAINING_PICTURES.items()}
    metrics = ", ".join(known["metrics"])
    drawn[f"{metrics} as the script printed it"] = curves(known["metrics"])
    pictures = {what: picture for what, picture in drawn.items() if picture}
    return _filled("training", pictures=pictures) if pictures else ""


def _pace(known: Known) -> str:
    pace = known["pace"]
    return _filled("pace", pace=pace) if pace else ""


def _filled(name: str, **known: Any) -> str:
    return TEMPLATES.get_template(f"{name}.html.j2").render(known)


PANELS = (
    Panel(reads={"search": read_search}, html=_search, steps=("Tune",)),
    Panel(reads={"training": read_training, "metrics": read_metrics}, html=_training, in_file=True),
    Panel(
        reads={"gate": read_gate, "evaluation": read_evaluation},
        html=_gate,
        steps=("Gate",),
        packages=True,
    ),
    Panel(
        reads={"evaluation": read_evaluation}, html=_evaluation, steps=("Evaluate",), packages=True
    ),
    Panel(reads={"pace": read_pace}, html=_pace, steps=("Train",)),
)
"""Panels in their order on the page."""
