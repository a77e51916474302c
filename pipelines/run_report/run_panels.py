"""Panels of a run's page that only our runs have: the gate, the test split, the training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.run_report.run_documents import (
    against,
    format_demand,
    format_value,
    read_evaluation,
    read_gate,
    read_metrics,
    read_training,
)
from pipelines.run_report.run_pictures import GATE_PICTURES, TRAINING_PICTURES, curves
from pipelines.run_report.search_results import (
    MAX_TRIALS,
    over_seeds,
    rank_trials,
    read_search,
    round_value,
    search_picture,
)
from pipelines.run_report.training_pace import read_pace
from trainyard.console.app_hooks import Panel, templates
from trainyard.console.outcomes import Outcome
from trainyard.runs.execution import Execution, Step
from trainyard.runs.training_speed import figure

PanelData = Mapping[str, Any]
TEMPLATES = templates(
    Path(__file__).parent,
    demanded=format_demand,
    measured=format_value,
    against=against,
    figure=figure,
    rounded=round_value,
)


def judge(execution: Execution, steps: Mapping[str, Step]) -> Outcome | None:
    """Return the gate's verdict, with the first metric that it judges beside the champion's."""
    if "Gate" not in steps or steps["Gate"].status != "Succeeded":
        return None
    if (gate := read_gate(execution, steps)) is None:
        return None
    values = gate.get("metrics") or {}
    metric = next((check["metric"] for check in gate["checks"] if check["metric"] in values), "")
    return Outcome(
        metric=metric,
        value=values.get(metric),
        champion=(gate.get("champion_metrics") or {}).get(metric),
        verdict=gate["verdict"],
    )


def _gate(data: PanelData) -> str:
    gate, evaluation = data["gate"], data["evaluation"]
    if not gate:
        return ""
    pictures = {name: draw(gate, evaluation) for name, draw in GATE_PICTURES.items()}
    return _fill_template("gate", gate=gate, pictures=pictures)


def _evaluation(data: PanelData) -> str:
    evaluation = data["evaluation"]
    return _fill_template("evaluation", evaluation=evaluation) if evaluation else ""


def _search(data: PanelData) -> str:
    search = data["search"]
    if not search or not search["trials"]:
        return ""
    trials = search["trials"]
    best = rank_trials(trials)
    picture = search_picture(trials, best[0]["job"])
    return _fill_template(
        "search",
        picture=picture,
        trials=trials,
        names=[*trials[0]["values"]],
        best=best[:MAX_TRIALS],
        seeds=over_seeds(trials),
    )


def _training(data: PanelData) -> str:
    pictures_by_title = {title: draw(data["training"]) for title, draw in TRAINING_PICTURES.items()}
    metrics = ", ".join(data["metrics"])
    pictures_by_title[f"{metrics} as the script printed it"] = curves(data["metrics"])
    pictures = {title: picture for title, picture in pictures_by_title.items() if picture}
    return _fill_template("training", pictures=pictures) if pictures else ""


def _pace(data: PanelData) -> str:
    pace = data["pace"]
    return _fill_template("pace", pace=pace) if pace else ""


def _fill_template(name: str, **values: Any) -> str:
    return TEMPLATES.get_template(f"{name}.html.j2").render(values)


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
