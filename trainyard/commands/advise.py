"""Recommend machines and a layout for a training run, with its time, memory and cost.

trainyard advise --model llama-3-70b --tokens 1T --deadline 30d --instances ml.p5.48xlarge
trainyard advise --layers 32 --hidden 4096 --set vocab=32000 --tokens 140B --budget 100000
trainyard advise --shapes shapes.json --tokens 20B   # what python -m training.tools.shapes prints
trainyard advise --rows rows.jsonl --json              # a line for a line: docs/foresight.md
trainyard advise --calibrate EXECUTION --setting setting.json     # learn from what a training took

It starts nothing, and only --calibrate sends requests to AWS. Exit status: 0; 3 if no layout fits;
1 for an error, also in a row.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from math import log2
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from trainyard.common.errors import RecipeError, suggest_nearest
from trainyard.foresight import advice_display, measured_corrections, model_shapes
from trainyard.foresight.advice import Advice, advise
from trainyard.foresight.advice_display import render_advice
from trainyard.foresight.layouts import Space
from trainyard.foresight.model_shapes import ADAPTED_BATCH, MODELS, TUNED_BATCH, Model, get_model
from trainyard.foresight.question import (
    Offer,
    Question,
    choose_offers,
    filter_by_precision,
    parse_hours,
    parse_number,
    parse_usd,
    predict_file,
)
from trainyard.foresight.setting import ENDS, Setting
from trainyard.foresight.transformer_formulas import Shapes
from trainyard.terminal import Need, console, needs, parse_pairs
from trainyard.validate.all_checks import JsonOption

NOTHING_FITS = 3
USUAL = "ml.p4d.24xlarge,ml.p5.48xlarge,ml.p5en.48xlarge"
MOST_NODES, REGION = 64, "us-east-1"
BATCH_TOKENS = 4e6
"""Tokens per optimizer step if neither --global-batch nor a published model gives them: Llama 2's
(arXiv 2307.09288, table 1)."""

_SPACE = TypeAdapter(Space)
LAYOUT_FIELDS = frozenset(field.name for field in fields(Space)) - {
    "refuse",
    "hybrid",
    "shortest_share",
}
"""Fields of a setting that belong to the layout. Several values may be given, to choose from."""

DERIVED_FIELDS = {
    "gpu",
    "gpus",
    "gpus_per_node",
    "node_gbps",
    "accumulation",
    "data",
    "shard_degree",
}


def needs_shape(values: Mapping[str, Any]) -> bool:
    """Return whether the options must describe the model, because they do not name a known one."""
    alternatives = ("model", "shapes", "rows", "learn_from")
    return not any(values[name] is not None for name in alternatives)


def needs_tokens(values: Mapping[str, Any]) -> bool:
    """Return whether --tokens is needed, because no published model gives the number of tokens."""
    if any(values[name] is not None for name in ("rows", "learn_from")):
        return False
    if (name := values["model"]) is None:
        return True
    # An unknown name is an error, which the verb reports itself.
    if name not in MODELS:
        return False
    adapts = any("lora_rank" in text for text in values["given"])
    return values["fine_tune"] or adapts or MODELS[name].tokens is None


@needs(
    Need(("layers", "model", "shapes"), needs_shape, exclusive=False),
    Need(("hidden",), needs_shape),
    Need(("tokens",), needs_tokens),
    Need(("setting",), lambda values: values["learn_from"] is not None),
)
def main(
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"A published model: {', '.join(MODELS)}.")
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Transformer blocks.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of the model.")] = None,
    shapes: Annotated[
        Path | None, typer.Option(help="File with the output of python -m training.tools.shapes.")
    ] = None,
    given: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="A field of a setting (docs/foresight.md), such as vocab=32000, heads=32, "
            "compile=false, lora_rank=16; of a layout, the values to choose from: tensor=4,8.",
        ),
    ] = [],  # noqa: B006
    tokens: Annotated[str | None, typer.Option(help="Tokens to train on: 300B, 1.4T.")] = None,
    fine_tune: Annotated[
        bool,
        typer.Option(
            "--fine-tune", help="The weights begin as a trained model's; implied by lora_rank."
        ),
    ] = False,
    sequence: Annotated[int | None, typer.Option(help="Tokens per sample.")] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, max=10**7, help="Samples per step.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="Time limit at p90: 36h, 30d, 2w.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Cost limit at p90 in USD, such as 250k.", parser=parse_usd)
    ] = None,
    instances: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE,…",
            help=f"Instance types to choose from; default: a recipe's, else {USUAL}.",
        ),
    ] = None,
    max_nodes: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Largest number of instances; default: 64, or 16 for a recipe."
        ),
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Use spot instances.")] = False,
    region: Annotated[
        str | None, typer.Option(help="Region whose prices to use; default: us-east-1.")
    ] = None,
    as_json: JsonOption = False,
    rows: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead: a training run per line, as JSON; prints time, rate and memory as JSON.",
        ),
    ] = None,
    learn_from: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="EXECUTION|all",
            help="Instead: correct predictions by the times of an execution's training runs.",
        ),
    ] = None,
    setting: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --calibrate: the training's setting, as JSON; for Trainyard's "
            "own loop, python -m pipelines.advise --calibrate reads it from the job.",
        ),
    ] = None,
    *,
    subject: Callable[[], dict[str, Any]] | None = None,
    setting_of: Callable[[Mapping[str, Any]], Setting] | None = None,
    conclude: Callable[[Advice], None] = lambda advice: None,
) -> None:
    """Recommend machines and a layout for a training run.

    An application may pass three arguments: ``subject`` returns the fields of the question;
    ``setting_of`` reads a job's setting; ``conclude`` is called with the advice after it was shown.
    """
    if rows is not None:
        raise typer.Exit(0 if predict_file(rows, sys.stdout) else 1)
    if learn_from is not None:
        if setting_of is None:
            assert setting is not None  # noqa: S101 (the verb needs it)
            fixed_setting = _read_setting(setting)
            setting_of = lambda job: fixed_setting  # noqa: E731
        # Imported here, because it loads boto3, which nothing else here needs.
        from trainyard.runs.training_speed import calibrate_predictions

        for line in calibrate_predictions(learn_from, setting_of):
            console.print(line, highlight=False, markup=False)
        raise typer.Exit
    question: dict[str, Any] = {
        "max_nodes": max_nodes or MOST_NODES,
        "deadline": None if deadline is None else parse_hours("--deadline", deadline),
        "budget": budget,
        "how": "spot" if spot else "on demand",
    }
    if subject:
        question |= subject()
    else:
        question["region"] = region or REGION
        question["offers"], question["elsewhere"] = choose_offers(
            instances or USUAL, question["region"]
        )
        architecture = get_model(model) if model else None
        options = {"layers": layers, "hidden": hidden, "sequence": sequence}
        question |= _build_model_fields(
            architecture,
            _read_shapes(shapes),
            given,
            options,
            question["offers"],
            tokens,
            fine_tune,
        )
        question["global_batch"] = global_batch or question["global_batch"]
    advice = advise(Question(**question, **_read_corrections(question["offers"])))
    if as_json:
        print(json.dumps(advice_display.build_advice_json(advice), indent=1))
    else:
        console.print(render_advice(advice), highlight=False, markup=False)
    conclude(advice)
    raise typer.Exit(0 if advice.ranking else NOTHING_FITS)


def _build_model_fields(
    architecture: Model | None,
    shapes: Shapes | None,
    settings: Sequence[str],
    options: Mapping[str, Any],
    offers: Sequence[Offer],
    tokens: str | None,
    fine_tune: bool,
) -> dict[str, Any]:
    """Return fields of ``Question`` for a published model, for shapes, or for a model's size."""
    fields, layout = _split_assignments(settings)
    offers = filter_by_precision(offers, layout.get("precision", "bf16").split(","))
    model = _make_setting({**fields, **options}, architecture, shapes, offers[0].machine.gpu)
    space = _parse_space(layout)
    if (stages := min(space.pipeline) * min(space.interleave)) > model.layers + ENDS:
        raise RecipeError(
            f"--set pipeline={layout.get('pipeline', '1')}: is {stages} stages or more; expected "
            f"at most one for each of the {model.layers} layers: pipeline={model.layers}"
        )
    partial = model.lora_rank > 0 or (shapes is not None and shapes.trained < shapes.parameters)
    tunes = fine_tune or partial
    if tunes:
        batch = ADAPTED_BATCH if partial else TUNED_BATCH
    else:
        published_tokens = architecture.batch_tokens if architecture else None
        # Rounded to a power of two, like the typical sizes of clusters.
        batch = 2 ** max(0, round(log2((published_tokens or BATCH_TOKENS) / model.sequence)))
    return {
        "model": model,
        "tokens": _choose_tokens(tokens, None if tunes else architecture),
        "global_batch": batch,
        "offers": offers,
        "space": space,
        "shapes": shapes,
    }


def _split_assignments(assignments: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split the values of --set into (fields of the training run, choices for layout fields)."""
    values = parse_pairs("--set", assignments)
    layout = {name: values.pop(name) for name in [*values] if name in LAYOUT_FIELDS}
    for name in values:
        if name in DERIVED_FIELDS:
            raise RecipeError(
                f"--set {name}: follows from --instances, --max-nodes, --global-batch and the "
                "layout; leave it out"
            )
    degrees = layout.get("tensor", "1").split(",")
    if values.get("quantization", "none") != "none" and "1" not in degrees:
        raise RecipeError(
            f"--set tensor={layout['tensor']}: expected 1 with quantization "
            f"{values['quantization']}: quantized weights cannot be split; leave tensor out"
        )
    return values, layout


def _make_setting(
    fields: Mapping[str, Any], model: Model | None, shapes: Shapes | None, gpu: str
) -> Setting:
    """Return the setting of the training run, from a published model, from shapes, or from fields.

    Raises:
        RecipeError: a field is missing, unknown or wrong.
    """
    base = dict(model.shape) if model else model_shapes.compute_widths(shapes) if shapes else {}
    given_fields = {name: value for name, value in fields.items() if value is not None}
    try:
        return Setting.model_validate({"gpu": gpu, "compile": True, **base, **given_fields})
    except ValidationError as error:
        raise RecipeError(explain_first_problem(error, [*Setting.model_fields])) from None


def _read_setting(path: Path) -> Setting:
    """Read the file of --setting: the setting of measured jobs that do not contain their own."""
    try:
        return Setting.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise RecipeError(explain_first_problem(error, [*Setting.model_fields])) from None
    except OSError as error:
        raise RecipeError(f"--setting {path}: cannot be read: {error}") from None


def _read_shapes(path: Path | None) -> Shapes | None:
    if path is None:
        return None
    try:
        return model_shapes.parse_shapes(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"--shapes {path}: cannot be read: {error}; give the output of "
            "python -m training.tools.shapes"
        ) from None


def _choose_tokens(text: str | None, model: Model | None) -> float:
    """Return the number of tokens to train on: those given, or those of the published model."""
    if text is not None:
        return parse_number("--tokens", text)
    assert model is not None  # noqa: S101 (else the verb needs --tokens)
    assert model.tokens is not None  # noqa: S101
    return model.tokens


def _read_corrections(offers: Sequence[Offer]) -> dict[str, Any]:
    """Return fields of ``Question`` that correct predictions by the user's own training runs.

    They are empty if the working directory has no calibration.
    """
    corrections = measured_corrections.read_measured_runs()
    counts = {offer.machine.gpu: corrections.count_runs(offer.machine.gpu) for offer in offers}
    summary = ", ".join(f"{count} on {gpu}" for gpu, count in counts.items() if count)
    if not summary:
        return {}
    return {
        "time": corrections.predict_time,
        "learned": f"Corrected by your own training runs: {summary} ({measured_corrections.PLACE})",
    }


def _parse_space(assignments: Mapping[str, str]) -> Space:
    """Parse the values to try for each layout field, such as ``4,8``, and sort them.

    Raises:
        RecipeError: a value is invalid.
    """
    try:
        read = _SPACE.validate_python({name: text.split(",") for name, text in assignments.items()})
    except ValidationError as error:
        raise RecipeError(explain_first_problem(error, LAYOUT_FIELDS)) from None
    order = {"shard": Space().shard, "recompute": Space().recompute}
    choices: dict[str, Any] = {
        name: sorted(getattr(read, name), key=order[name].index if name in order else None)
        for name in assignments
    }
    # If context parallelism is asked for, it is also tried on short sequences.
    if "context" in assignments:
        choices["shortest_share"] = 1
    return replace(read, **choices)


def explain_first_problem(
    error: ValidationError, valid_names: Sequence[str] | frozenset[str]
) -> str:
    """Return a message about the first invalid field of ``--set``."""
    problem = error.errors()[0]
    name = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "missing":
        return f"--{name}: is missing; give it, --model NAME or --shapes FILE"
    if problem["type"] == "extra_forbidden":
        return f"--set {name}: unknown field; {suggest_nearest(name, sorted(valid_names))}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"--set {name}={problem['input']}: {message}" if name else message
