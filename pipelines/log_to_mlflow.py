"""Log a registered model in MLflow: metrics, verdict, evidence, and a version of a model there.

python -m pipelines.log_to_mlflow MODEL_PACKAGE_ARN [--tracking-uri URI] [--model NAME]

The run is the training's, where the training logged on that server by
train.loop.mlflow_tracking_uri; else a new one. Logging a package twice changes nothing. It needs
mlflow-skinny, or mlflow.
"""

import json
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from pipelines.registry.package_evidence import Absent, Evidence
from trainyard.common.errors import ServiceError
from trainyard.local_state import served
from trainyard.terminal import console, run

PACKAGE = "sagemaker.model_package"
"""Tag that names the package, on the run and on the model's version."""
TRAINING = "trainyard.training"
"""Tag of a run that the training began: its identity (training.watching.trackers)."""


@served()
def main(
    package: Annotated[str, typer.Argument(metavar="MODEL_PACKAGE_ARN")],
    tracking_uri: Annotated[
        str | None, typer.Option(help="The server; default: MLFLOW_TRACKING_URI.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model there; default: the package's group.")
    ] = None,
) -> None:
    """Log a registered model in MLflow."""
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise ServiceError(
            "MLflow's server is not known: give --tracking-uri or MLFLOW_TRACKING_URI"
        )
    if not find_spec("mlflow"):
        raise ServiceError("mlflow is not installed: pip install 'mlflow-skinny>=3,<4'")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # sends nothing to third parties
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    evidence = Evidence(package)
    name = model or evidence.package["ModelPackageGroupName"]
    try:
        documents = dict(_documents(evidence))
        client = MlflowClient(tracking_uri=uri)
        run_id = _run(client, evidence)
        _log(client, run_id, documents, _tags(evidence))
        version = _version(client, run_id, name, evidence)
    except Absent as missing:
        raise ServiceError(f"{package}: {missing}: nothing was logged") from None
    except MlflowException as refused:
        raise ServiceError(f"MLflow: {refused}; log the package again") from None
    console.print(f"run {run_id}, version {version} of model {name}", highlight=False)


def _documents(evidence: Evidence) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "evaluation.json", evidence.json(evidence.source("Statistics")["S3Uri"])
    yield "gate.json", evidence.json(evidence.source("Constraints")["S3Uri"])
    yield "provenance.json", evidence.provenance


def _tags(evidence: Evidence) -> dict[str, str]:
    found = evidence.provenance
    return {
        PACKAGE: evidence.arn,
        "sagemaker.pipeline_execution": evidence.metadata["execution"],
        "trainyard.commit": str(found["commit"]),
        "trainyard.verdict": str(found["verdict"]),
    }


def _run(client: Any, evidence: Evidence) -> str:
    """Return the ID of the training's run, or of the package's, or of a new one."""
    everywhere = [one.experiment_id for one in client.search_experiments()]
    identity = evidence.provenance.get("identity")
    for tag, value in ((TRAINING, identity), (PACKAGE, evidence.arn)):
        found = client.search_runs(everywhere, f"tags.`{tag}` = '{value}'", max_results=1)
        if found:
            return found[0].info.run_id
    execution = evidence.metadata["execution"]
    title = execution.partition(":pipeline/")[2].partition("/")[0]
    known = client.get_experiment_by_name(title)
    experiment = known.experiment_id if known else client.create_experiment(title)
    made = client.create_run(experiment, run_name=execution.rpartition("/")[2])
    client.set_terminated(made.info.run_id)
    return made.info.run_id


def _log(
    client: Any, run_id: str, documents: Mapping[str, dict[str, Any]], tags: Mapping[str, str]
) -> None:
    """Log metrics and documents, and last the tags, by which another call finds the run."""
    if client.get_run(run_id).data.tags.get(PACKAGE) == tags[PACKAGE]:
        return
    for key, value in metrics(documents["evaluation.json"]).items():
        client.log_metric(run_id, key, value)
    for file, document in documents.items():
        client.log_text(run_id, json.dumps(document, indent=1), file)
    for key, value in tags.items():
        client.set_tag(run_id, key, value)


def metrics(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Return MLflow's metrics of an evaluation: ``test/loss``, ``champion/loss``,
    ``bigram/loss`` of a baseline.
    """
    models = {"test": evaluation["metrics"], "champion": evaluation["champion"]["metrics"]}
    found = {f"{of}/{name}": m["value"] for of, each in models.items() for name, m in each.items()}
    for baseline, values in evaluation["baselines"].items():
        found |= {f"{baseline}/{name}": value for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not None}


def _version(client: Any, run_id: str, name: str, evidence: Evidence) -> str:
    """Return the version of model ``name`` that is the package; it is created if it is missing."""
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    known = client.search_model_versions(f"name = '{name}'")
    for each in known:
        if each.tags.get(PACKAGE) == evidence.arn:
            return str(each.version)
    made = client.create_model_version(name, evidence.model, run_id, tags=_tags(evidence))
    return str(made.version)


if __name__ == "__main__":
    run(main)
