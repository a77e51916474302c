"""Somebody's train.py, evaluate.py and inference.py: trained, gated, registered, approved, served.

One pipeline on one emulator: its runs follow each other as they would.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from pipelines.approve import approve
from pipelines.definition import from_recipe
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.record_checks import Mismatch
from pipelines.registry.verification import split, verify
from pipelines.run_report.run_panels import PANELS
from pipelines.start import start
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT
from tests.somebodys.data import BUCKET, ROWS, put
from trainyard.console import frozen_page
from trainyard.language.definition_document import END_STATUSES
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import model_package

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Run:
    """A run of somebody's pipeline, which is over."""

    execution: Execution
    package: str | None
    gate: dict[str, Any]

    @property
    def rejected(self) -> list[str]:
        return [check["name"] for check in self.gate["checks"] if not check["passed"]]


@pytest.fixture(scope="module")
def client(aws_environment):
    """Clients at the emulator, with somebody's data in its S3."""
    put(boto3.client("s3"))
    return boto3.client


@pytest.fixture(scope="module")
def run(client) -> Callable[..., Run]:
    """A run of the pipeline with these arguments of train.py."""

    def go(**arguments) -> Run:
        given = json.dumps({"slope": 1.5} | arguments)
        upsert(from_recipe(CHECKOUT / "tests/somebodys/recipe.yaml", [f"train.arguments={given}"]))
        execution = Execution(start(BUCKET, {}))
        while execution.describe()["PipelineExecutionStatus"] not in END_STATUSES:
            time.sleep(0.3)
        steps = {step.name: step for step in execution.steps()}
        assert "Gate" in steps and steps["Gate"].status == "Succeeded", steps
        gate = execution.output_json(steps["Gate"], "gate", "gate.json")
        return Run(execution, model_package(list(steps.values())), gate)

    return go


@pytest.fixture(scope="module")
def champion(run) -> Run:
    """The first model, approved."""
    found = run()
    approve(str(found.package), reason="the slope is an override of the recipe's")
    return found


def test_the_first_model_is_registered_and_all_that_its_record_says_holds(champion):
    findings = {finding.name: finding for finding in verify(str(champion.package), deep=True)}
    assert not [f for f in findings.values() if f.status == "mismatch"]
    checked = {name for name, finding in findings.items() if finding.status == "ok"}
    assert {"artifact's training", "scores", "train split", "test split", "verdict"} <= checked
    assert champion.gate["champion"] == "none" and champion.gate["examples"] == len(ROWS)


def test_a_worse_model_is_rejected_against_the_champion(champion, run):
    worse = run(slope=0.2)
    assert worse.package is None and worse.rejected == ["non_inferiority_log_loss"]
    assert worse.gate["champion"] == champion.package and worse.gate["look"] == 1


def test_a_model_that_was_trained_on_test_examples_is_rejected_though_it_is_no_worse(champion, run):
    leaked = run(seen="row-3,row-17,something")
    assert leaked.package is None and leaked.rejected == ["max_leaked_examples"]
    assert leaked.gate["champion"] == champion.package
    assert "2 of 400" in leaked.gate["reason"]


def test_its_page_has_the_gate_and_the_test_split(champion, tmp_path):
    page = tmp_path / "report.html"
    frozen_page.write(champion.execution.arn, page, PANELS)
    text = page.read_text()
    assert "Gate: " in text and "Held-out test split" in text and "log loss" in text


def test_other_test_data_under_the_same_name_are_found(champion, client):
    s3 = client("s3")
    before = s3.get_object(Bucket=BUCKET, Key="data/test/test.csv")["Body"].read()
    s3.put_object(Bucket=BUCKET, Key="data/test/test.csv", Body=before.replace(b",1\n", b",0\n"))
    try:
        with pytest.raises(Mismatch, match="SHA-256 of channel test"):
            split("test", deep=True)(Evidence(str(champion.package)))
    finally:
        s3.put_object(Bucket=BUCKET, Key="data/test/test.csv", Body=before)


def test_the_registered_package_answers_by_the_scripts_own_functions(champion, client):
    sagemaker, role = client("sagemaker"), "arn:aws:iam::123456789012:role/pipelines"
    container = {"ModelPackageName": champion.package}
    sagemaker.create_model(ModelName="m", Containers=[container], ExecutionRoleArn=role)
    variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.m5.large"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="c", ProductionVariants=[variant | {"InitialInstanceCount": 1}]
    )
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="e", WaiterConfig={"Delay": 1, "MaxAttempts": 90}
    )
    answer = client("sagemaker-runtime").invoke_endpoint(
        EndpointName="e", ContentType="application/json", Body=b'{"x": 1}'
    )
    probability = json.loads(answer["Body"].read())["probability"]
    assert probability == pytest.approx(1 / (1 + math.exp(-1.5)))
    sagemaker.delete_endpoint(EndpointName="e")
