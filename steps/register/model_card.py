"""Build the model card of a package, in AWS's schema of model package model cards.

A card is one string of JSON in CreateModelPackage, and much of it is known only when the pipeline
runs: so it is a Join of text and values of the run. Of ``model_overview`` a package's card
has only the creator and the artifact (API reference, ModelPackageModelCard); the other sections
are those of model_card_schema.json in the SDK's sources.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.functions import Join

from steps.register.config import CardConfig

Value: TypeAlias = str | PipelineVariable


@dataclass(frozen=True, slots=True)
class Number:
    """A value that will be a number, written without quotes."""

    value: PipelineVariable


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Locations of the data: S3 URIs of folders."""

    training: Sequence[Value]
    test: Sequence[Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Values of the run for the card: S3 URIs, ARNs and the like."""

    artifact: Value
    training_job: Value
    training_data: Sequence[Value]
    training_image: Value
    evaluation_job: Value
    test_data: Sequence[Value]
    metrics: Mapping[str, PipelineVariable]
    """Metric → its value on the test split, a number."""
    details: Mapping[str, Value]
    """Further details that a reader may want to look up."""


def model_card(config: CardConfig, creator: str, run: Run) -> Join:
    """Return the card's content, in one line. Hyperparameters are in the training job, which it
    names.
    """
    return join_json(
        {
            "model_overview": {"model_creator": creator, "model_artifact": [run.artifact]},
            "intended_uses": config.model_dump(exclude={"caveats"}, exclude_none=True),
            "training_details": {
                "training_job_details": {
                    "training_arn": run.training_job,
                    "training_datasets": list(run.training_data),
                    "training_environment": {"container_image": [run.training_image]},
                }
            },
            "evaluation_details": [
                {
                    "name": "held-out test split",
                    "evaluation_job_arn": run.evaluation_job,
                    "datasets": list(run.test_data),
                    "metric_groups": [
                        {
                            "name": "metrics",
                            "metric_data": [
                                {"name": name, "type": "number", "value": Number(value)}
                                for name, value in run.metrics.items()
                            ],
                        }
                    ],
                }
            ],
            "additional_information": {
                "caveats_and_recommendations": config.caveats,
                "custom_details": dict(run.details),
            },
        }
    )


def join_json(document: Any) -> Join:
    """Return ``document`` as JSON in one line; pipeline variables become strings, or numbers.

    The value of a variable is not escaped: it must be an ARN, a URI, a hash or a number.
    """
    parts: list[Value] = [""]
    for part in _parts(document):
        if type(part) is type(parts[-1]) is str:  # a ParameterString is also a str
            parts[-1] += part
        else:
            parts.append(part)
    return Join(on="", values=parts)


def _parts(value: Any) -> Iterator[Value]:
    if isinstance(value, Number):
        yield value.value
    elif isinstance(value, PipelineVariable):
        yield from ('"', value, '"')
    elif isinstance(value, Mapping):
        members = ((f"{json.dumps(name)}: ", inner) for name, inner in value.items())
        yield from _enclose("{", "}", members)
    elif isinstance(value, list):
        yield from _enclose("[", "]", (("", inner) for inner in value))
    else:
        yield json.dumps(value)


def _enclose(first: str, last: str, items: Iterable[tuple[str, Any]]) -> Iterator[Value]:
    yield first
    for number, (name, inner) in enumerate(items):
        yield f", {name}" if number else name
        yield from _parts(inner)
    yield last
