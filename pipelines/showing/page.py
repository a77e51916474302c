"""The sections of a run's page that only our runs have: the gate, the test split, the training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.showing import gate_pictures, training_pictures
from pipelines.showing.documents import read_evaluation, read_gate, read_metrics, read_training
from pipelines.showing.pace import read_pace
from pipelines.showing.wording import against, demanded, measured
from trainyard.runs.pace import figure
from trainyard.runs.sections import Section, templates

Known = Mapping[str, Any]
TEMPLATES = templates(
    Path(__file__).parent, demanded=demanded, measured=measured, against=against, figure=figure
)


def _gate(known: Known) -> str:
    gate, evaluation = known["gate"], known["evaluation"]
    if not gate:
        return ""
    pictures = {name: draw(gate, evaluation) for name, draw in gate_pictures.PICTURES.items()}
    return _filled("gate", gate=gate, pictures=pictures)


def _evaluation(known: Known) -> str:
    found = known["evaluation"]
    return _filled("evaluation", evaluation=found) if found else ""


def _training(known: Known) -> str:
    pictures = [draw(known["training"]) for draw in training_pictures.PICTURES]
    pictures.append(training_pictures.curves(known["metrics"]))
    return _filled("training", pictures=pictures) if any(pictures) else ""


def _pace(known: Known) -> str:
    pace = known["pace"]
    return _filled("pace", pace=pace) if pace else ""


def _filled(name: str, **known: Any) -> str:
    return TEMPLATES.get_template(f"{name}.html.j2").render(known)


SECTIONS = (
    Section(reads={"gate": read_gate, "evaluation": read_evaluation}, html=_gate),
    Section(reads={"evaluation": read_evaluation}, html=_evaluation),
    Section(reads={"training": read_training, "metrics": read_metrics}, html=_training),
    Section(reads={"pace": read_pace}, html=_pace),
)
"""In the order in which they stand on the page, between its head and the steps."""
