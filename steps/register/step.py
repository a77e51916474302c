"""Declare the register step: a model package with its evidence and its provenance."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sagemaker.core.drift_check_baselines import DriftCheckBaselines
from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.model_metrics import MetricsSource, ModelMetrics
from sagemaker.core.shapes import ModelPackageModelCard
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.steps import ProcessingStep, TrainingStep
from sagemaker.serve.model_builder import ModelBuilder

from steps.processing import StepContext, build_output_uri
from steps.register.config import SERVING, CardConfig, RegisterConfig
from training.weights.starting_weights import BASE
from trainyard.common.errors import DefinitionError

# Build the model card of a package, in AWS's schema of model package model cards.
#
# A card is one JSON string in CreateModelPackage, and much of it is known only when the pipeline
# runs. So it is a Join of text and values of the execution. In ``model_overview``, a package's card
# has only the creator and the artifact (API reference, ModelPackageModelCard); the other sections
# are those of model_card_schema.json in the SDK's sources.

Value: TypeAlias = str | PipelineVariable


@dataclass(frozen=True, slots=True)
class Number:
    """A pipeline variable that is a number, so it is written without quotes."""

    value: PipelineVariable


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """S3 URIs of the folders with the data."""

    training: Sequence[Value]
    test: Sequence[Value]


def build_model_card(
    config: CardConfig,
    model: PipelineVariable,
    train: TrainingStep,
    evaluate: ProcessingStep,
    data: Data,
    metrics: Mapping[str, PipelineVariable],
    details: Mapping[str, Value],
) -> Join:
    """Return the card's JSON. It names the training job, which has the hyperparameters.

    Args:
        metrics: metric → its value on the test split, a number.
        details: the package's customer metadata.
    """
    image = train.properties.AlgorithmSpecification.TrainingImage
    return join_json(
        {
            "model_overview": {
                "model_creator": f"pipeline {details['pipeline']}",
                "model_artifact": [model],
            },
            "intended_uses": config.model_dump(exclude={"caveats"}, exclude_none=True),
            "training_details": {
                "training_job_details": {
                    "training_arn": train.properties.TrainingJobArn,
                    "training_datasets": list(data.training),
                    "training_environment": {"container_image": [image]},
                }
            },
            "evaluation_details": [
                {
                    "name": "held-out test split",
                    "evaluation_job_arn": evaluate.properties.ProcessingJobArn,
                    "datasets": list(data.test),
                    "metric_groups": [
                        {
                            "name": "metrics",
                            "metric_data": [
                                {"name": name, "type": "number", "value": Number(value)}
                                for name, value in metrics.items()
                            ],
                        }
                    ],
                }
            ],
            "additional_information": {
                "caveats_and_recommendations": config.caveats,
                "custom_details": dict(details),
            },
        }
    )


def join_json(document: Any) -> Join:
    """Return ``document`` as one line of JSON; variables are strings, or numbers in ``Number``.

    The value of a variable is not escaped, so it must be an ARN, a URI, a hash or a number.
    """
    parts: list[Value] = [""]
    for part in _iter_json_parts(document):
        if type(part) is type(parts[-1]) is str:  # isinstance would match a ParameterString
            parts[-1] += part
        else:
            parts.append(part)
    return Join(on="", values=parts)


def _iter_json_parts(value: Any) -> Iterator[Value]:
    """Yield the pieces of the value's JSON: text and pipeline variables."""
    if isinstance(value, Number):
        yield value.value
    elif isinstance(value, PipelineVariable):
        yield from ('"', value, '"')
    elif isinstance(value, Mapping):
        members = ((f"{json.dumps(name)}: ", inner) for name, inner in value.items())
        yield from _enclose_items("{", "}", members)
    elif isinstance(value, list):
        yield from _enclose_items("[", "]", (("", inner) for inner in value))
    else:
        yield json.dumps(value)


def _enclose_items(first: str, last: str, items: Iterable[tuple[str, Any]]) -> Iterator[Value]:
    """Yield the items between ``first`` and ``last``, separated by commas."""
    yield first
    for number, (name, inner) in enumerate(items):
        yield f", {name}" if number else name
        yield from _iter_json_parts(inner)
    yield last


RECORD_KEYS = (
    *("commit", "changes_sha256", "recipe_sha256", "definition_sha256", "seed"),
    *("artifact_sha256", "packages_sha256", "dataset_fingerprint", "checkpoint_step", "identity"),
    *("evaluation_sha256", "gate_sha256", "champion", "provenance_sha256"),
)
"""Fields of record.json (``conditions.gate_documents.build_model_metadata``) in the customer
metadata.
"""
MOST_METADATA, LONGEST_METADATA = 50, 256  # CustomerMetadataMap, CustomerMetadataValue
APPROVE_WITH = "python -m pipelines.approve"
"""Value of the customer metadata ``approve_with``. Trainyard's console approves a package with it
only through the application that it belongs to.
"""
PENDING = "PendingManualApproval"
"""Approval status of every new package; ``pipelines.approve`` decides after the execution."""
EXECUTION_ID = 12  # characters of an execution's ID, in AWS and in the emulator
ENTRY = {
    "SAGEMAKER_PROGRAM": "inference.py",  # the SDK says "", which the toolkit cannot import
    "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code",
}
"""Environment variables that name the inference code, which ``training.export.artifact.add_code``
writes.
"""


class Builder(ModelBuilder):
    """A ModelBuilder without empty variables, since XGBoost's image takes "" as an entry point."""

    def _script_mode_env_vars(self) -> dict[str, str]:
        """Return ModelBuilder's variables without the empty ones."""
        return {name: value for name, value in super()._script_mode_env_vars().items() if value}


def make_register_step(
    context: StepContext,
    config: RegisterConfig,
    *,
    image: str,
    model: PipelineVariable,
    train: TrainingStep,
    evaluate: ProcessingStep,
    gate: ProcessingStep,
    data: Data,
    entry: bool,
    batches: bool,
    is_compressed: bool,
    metrics: Mapping[str, str],
    about: Mapping[str, str | PipelineVariable],
) -> ModelStep:
    """Declare a model package that can be deployed, with evaluation.json and gate.json as
    ModelMetrics.

    The customer metadata contain ``about``, the test ``metrics``, the gate's record and the URI of
    provenance.json. All values of an execution are read when it runs, so the definition names no
    commit.

    Args:
        model: S3 URI of the model that is registered.
        entry: whether the artifact contains code/inference.py; if not, the image must answer
            requests on its own, as XGBoost's does.
        batches: whether the model is Trainyard's, which answers requests in batches.
        is_compressed: whether the model is one model.tar.gz; if not, it is all files of a prefix.

    Raises:
        DefinitionError: the customer metadata are more, or longer, than the service accepts.
    """
    source = {"S3Uri": model, "S3DataType": "S3Prefix", "CompressionType": "None"}
    builder = Builder(
        # ModelDataUrl, or ModelDataSource (API reference, S3ModelDataSource).
        s3_model_data_url=model if is_compressed else {"S3DataSource": source},
        image_uri=image,
        env_vars=(ENTRY if entry else {}) | (SERVING if batches else {}),
        role_arn=context.role,
        sagemaker_session=context.session,
    )
    metric_values = {
        metric: JsonGet(
            step_name=evaluate.name, property_file="Evaluation", json_path=f"metrics.{metric}.value"
        )
        for metric in metrics
    }
    if BASE in about:
        base_sha256 = JsonGet(
            step_name=evaluate.name, property_file="Evaluation", json_path="model.base.sha256"
        )
        about = {**about, "base_sha256": Join(on="", values=[base_sha256])}
    metadata = {
        **about,
        "execution": ExecutionVariables.PIPELINE_EXECUTION_ARN,
        "approve_with": APPROVE_WITH,
        "provenance_uri": _build_file_uri(gate, "gate", "provenance.json"),
        # A Join makes strings of them, because customer metadata refuse a bare number.
        **{
            name: Join(
                on="", values=[JsonGet(step_name=gate.name, property_file="Record", json_path=name)]
            )
            for name in RECORD_KEYS
        },
    }
    _check_metadata(len(metadata | metric_values), context.root_uri)
    statistics = _make_metrics_source(
        gate, "evaluation", _build_file_uri(evaluate, "evaluation", "evaluation.json")
    )
    constraints = _make_metrics_source(gate, "gate", _build_file_uri(gate, "gate", "gate.json"))
    step_args = builder.register(
        model_package_group_name=config.model_package_group,
        content_types=list(config.content_types),
        response_types=list(config.response_types),
        inference_instances=list(config.inference_instances),
        transform_instances=list(config.inference_instances),
        approval_status=PENDING,
        model_metrics=ModelMetrics(model_statistics=statistics, model_constraints=constraints),
        drift_check_baselines=DriftCheckBaselines(
            model_statistics=statistics, model_constraints=constraints
        ),
        customer_metadata_properties=metadata
        | {metric: Join(on="", values=[value]) for metric, value in metric_values.items()},
        model_card=ModelPackageModelCard(
            model_card_content=build_model_card(
                config.card, model, train, evaluate, data, metric_values, metadata
            ),
            model_card_status="Draft",
        ),
    )
    if context.tags and not config.group_region:
        # These are the tags of a group that the step creates (pull request 2475 of the SDK).
        step_args.create_model_package_request["Tags"] = context.build_aws_tags()
    note = "" if entry else f"; it holds no inference.py: {image} has to serve it by itself"
    return ModelStep(
        name="Register",
        display_name="Register the model package",
        description="Record the model, its evidence and its provenance in the model registry"
        + note,
        step_args=step_args,
    )


def _check_metadata(count: int, root_uri: str) -> None:
    """Raise DefinitionError, before the training, if the customer metadata exceed a limit."""
    if count > MOST_METADATA:
        raise DefinitionError(
            f"step Register: {count} customer metadata entries, but the service accepts "
            f"{MOST_METADATA}: the "
            "workload has too many metrics"
        )
    longest = f"{root_uri}/runs/{'x' * EXECUTION_ID}/gate/gate/provenance.json"
    if len(longest) > LONGEST_METADATA:
        raise DefinitionError(
            f"step Register: {longest} has {len(longest)} characters, but customer metadata may "
            "have "
            f"{LONGEST_METADATA}: shorten pipeline.name or aws.prefix"
        )


def _make_metrics_source(
    gate: ProcessingStep, evidence: str, uri: PipelineVariable
) -> MetricsSource:
    """Return the metrics source of the file at ``uri``, with the hash in the gate's record."""
    evidence_sha256 = JsonGet(
        step_name=gate.name, property_file="Record", json_path=f"{evidence}_sha256"
    )
    return MetricsSource("application/json", uri, Join(on=":", values=["sha256", evidence_sha256]))


def _build_file_uri(step: ProcessingStep, output: str, name: str) -> PipelineVariable:
    return Join(on="/", values=[build_output_uri(step, output), name])
