"""Panels on an execution's page that only our pipelines have, such as the gate's."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from matplotlib.axes import Axes
from scipy.stats import t as student

from pipelines.run_report.run_pictures import (
    GATE_PICTURES,
    GOOD,
    MODEL,
    OTHER,
    TRAINING_PICTURES,
    draw_script_metrics,
    render_plot,
)
from pipelines.run_report.step_documents import (
    format_demand,
    format_value,
    read_evaluation,
    read_gate,
    read_metrics,
    read_training,
)
from pipelines.run_report.training_pace import read_pace
from trainyard.console.app_hooks import Panel, create_environment
from trainyard.console.outcomes import Outcome
from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_display import Steps
from trainyard.runs.training_speed import format_figure

# The hyperparameter search on an execution's page: the objective of each training job.

MAX_TRIALS = 10
"""Maximum number of training jobs in the table; the best ones are shown."""

Trial = Mapping[str, Any]
"""A training job of the search: number from 1, job, values, metric, objective (None if it has
none), maximize, stopped.
"""


def read_search_jobs(execution: Execution, steps: Steps) -> dict[str, Any] | None:
    """Return {"trials": training jobs of step Tune}; None if the execution has no search."""
    arn = steps["Tune"].metadata.get("TuningJob", {}).get("Arn") if "Tune" in steps else None
    if not arn:
        return None
    return {"trials": parse_trials(execution.list_trainings(arn.rpartition("/")[2]))}


def parse_trials(jobs: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """Return the training jobs in the summaries of ListTrainingJobsForHyperParameterTuningJob."""
    return [
        {
            "number": number,
            "job": job["TrainingJobName"],
            "values": job["TunedHyperParameters"],
            "metric": (final := job.get("FinalHyperParameterTuningJobObjectiveMetric") or {}).get(
                "MetricName"
            ),
            "objective": final.get("Value"),
            "maximize": final.get("Type") == "Maximize",
            "stopped": job["TrainingJobStatus"] == "Stopped",
        }
        for number, job in enumerate(jobs, 1)
    ]


def round_value(value: str) -> str:
    """Return a hyperparameter's value with four significant digits if it is a number."""
    try:
        return f"{float(value):.4g}"
    except ValueError:
        return value


def rank_trials(search_trials: Iterable[Trial]) -> list[Trial]:
    """Return the training jobs ordered by objective: the best first, those without one last."""

    def build_sort_key(trial: Trial) -> tuple[bool, float]:
        """Return the trial's sort key: the better the objective, the smaller."""
        value = trial["objective"]
        return value is None, 0.0 if value is None else -value if trial["maximize"] else value

    return sorted(search_trials, key=build_sort_key)


def find_incumbents(search_trials: Iterable[Trial]) -> list[tuple[int, float]]:
    """Return (number, best objective so far) after each training job that was not stopped early."""
    best: list[tuple[int, float]] = []
    for trial in search_trials:
        value = trial["objective"]
        if value is None or trial["stopped"]:
            continue
        if best:
            value = (max if trial["maximize"] else min)(value, best[-1][1])
        best.append((trial["number"], value))
    return best


def summarize_seeds(search_trials: Iterable[Trial]) -> str | None:
    """Return mean and 95 % interval (Student's t) of the objective over seeds, as text.

    Return None if anything but seeds was searched, or fewer than two training jobs completed.
    """
    complete_trials = [
        trial for trial in search_trials if trial["objective"] is not None and not trial["stopped"]
    ]
    if len(complete_trials) < 2 or any([*trial["values"]] != ["seed"] for trial in complete_trials):
        return None
    values = [trial["objective"] for trial in complete_trials]
    reach = student.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return f"{mean(values):.4f} ± {reach:.4f} (95 % interval of the mean over {len(values)} seeds)"


def draw_search(search_trials: list[Trial], chosen_job: str | None) -> str | None:
    """Return an SVG of the training jobs' objectives in the order of their starts, and the best so
    far; None if no training job has an objective.

    ``chosen_job``: name of the training job that was chosen.
    """
    measured_trials = [trial for trial in search_trials if trial["objective"] is not None]
    if not measured_trials:
        return None
    groups = {
        "trained to its end": [
            t for t in measured_trials if not t["stopped"] and t["job"] != chosen_job
        ],
        "stopped early": [t for t in measured_trials if t["stopped"]],
        "chosen": [t for t in measured_trials if t["job"] == chosen_job],
    }
    colours = {"trained to its end": MODEL, "stopped early": OTHER, "chosen": GOOD}

    def draw(axes: Axes) -> None:
        if best := find_incumbents(search_trials):
            numbers, values = zip(*best, strict=True)
            axes.step(numbers, values, where="post", color=MODEL, lw=1, label="best so far")
        for name, group in groups.items():
            if group:
                points = [t["number"] for t in group], [t["objective"] for t in group]
                fill = "none" if name == "stopped early" else colours[name]
                axes.scatter(*points, edgecolor=colours[name], facecolor=fill, label=name, zorder=3)
        axes.set(xlabel="training", ylabel=str(measured_trials[0]["metric"]))
        axes.set_xticks(range(1, len(search_trials) + 1, max(1, len(search_trials) // 12)))
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)

    return render_plot(draw, (7, 3.0))


PanelData = Mapping[str, Any]
TEMPLATES = create_environment(
    Path(__file__).parent,
    demanded=format_demand,
    measured=format_value,
    figure=format_figure,
    rounded=round_value,
)


def read_outcome(execution: Execution, steps: Mapping[str, Step]) -> Outcome | None:
    """Return the gate's verdict, and the first metric that it judges, with the champion's value.

    Return None if the gate has not succeeded.
    """
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


def _render_gate(data: PanelData) -> str:
    """Return the gate panel's HTML; empty without gate.json."""
    gate, evaluation = data["gate"], data["evaluation"]
    if not gate:
        return ""
    pictures = {name: draw(gate, evaluation) for name, draw in GATE_PICTURES.items()}
    return _fill_template("gate", gate=gate, pictures=pictures)


def _render_search(data: PanelData) -> str:
    """Return the search panel's HTML; empty without a search."""
    search = data["search"]
    if not search or not search["trials"]:
        return ""
    trials = search["trials"]
    best = rank_trials(trials)
    picture = draw_search(trials, best[0]["job"])
    return _fill_template(
        "search",
        picture=picture,
        trials=trials,
        names=[*trials[0]["values"]],
        best=best[:MAX_TRIALS],
        seeds=summarize_seeds(trials),
    )


def _render_training(data: PanelData) -> str:
    """Return the training panel's HTML; empty without metrics."""
    pictures_by_title = {title: draw(data["training"]) for title, draw in TRAINING_PICTURES.items()}
    metrics = ", ".join(data["metrics"])
    pictures_by_title[f"{metrics} as the script printed it"] = draw_script_metrics(data["metrics"])
    pictures = {title: picture for title, picture in pictures_by_title.items() if picture}
    return _fill_template("training", pictures=pictures) if pictures else ""


def _fill_if_read(name: str) -> Callable[[PanelData], str]:
    """Return a function that renders the template ``name`` with the data of that name, if any."""
    return lambda data: _fill_template(name, **{name: data[name]}) if data[name] else ""


def _fill_template(name: str, **values: Any) -> str:
    return TEMPLATES.get_template(f"{name}.html.j2").render(values)


PANELS = (
    Panel(reads={"search": read_search_jobs}, html=_render_search, steps=("Tune",)),
    Panel(
        reads={"training": read_training, "metrics": read_metrics},
        html=_render_training,
        in_file=True,
    ),
    Panel(
        reads={"gate": read_gate, "evaluation": read_evaluation},
        html=_render_gate,
        steps=("Gate",),
        packages=True,
    ),
    Panel(
        reads={"evaluation": read_evaluation},
        html=_fill_if_read("evaluation"),
        steps=("Evaluate",),
        packages=True,
    ),
    Panel(reads={"pace": read_pace}, html=_fill_if_read("pace"), steps=("Train",)),
)
"""Panels in the order in which the page shows them."""
