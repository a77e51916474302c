"""Deploy a bad model and then a good one as a canary, under load.

python -m benchmarks.canary [--json FILE]

An endpoint of the embedded AWS serves a model while clients ask without a pause. UpdateEndpoint
first puts a model beside it that answers every request with an error, as a canary with an alarm:
the alarm must go off, and all requests return. Then a good one, which must go through. Every
request that a client made is counted: answered by a model, answered by the bad model with its
error (what a canary costs), or lost, which is everything else. The command fails unless the bad
one is rolled back, the good one is in service, and no request is lost.
"""

import io
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.endpoint_load import Ended, Load
from benchmarks.harness import JsonFile, keep, show_table
from benchmarks.measured_process import client
from trainyard.emulator.server import Endpoint, serve

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
ROLE = "arn:aws:iam::123456789012:role/canary"
NAME, VARIANT = "rehearsed", "one"
BAD = "this model is bad"
HANDLERS = f"""
def model_fn(model_dir): return open(model_dir + "/name").read()
def input_fn(body, content_type): return body
def predict_fn(data, name):
    if name == "bad": raise RuntimeError("{BAD}")
    return name
def output_fn(answer, accept): return answer
"""
BUSY = ("Creating", "Updating", "RollingBack")
app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Deployed:
    """One update, from its call to its end."""

    model: str
    status: str
    serves: str
    """The configuration that is in service afterwards."""
    reason: str
    seconds: float
    answered: dict[str, int] = field(default_factory=dict)
    """Requests that ended meanwhile: by the model that answered, ``error`` and ``lost``."""
    states: list[str] = field(default_factory=list)
    """EndpointStatus as it was seen, in its order."""


class Cloud:
    """The embedded AWS as its user has it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.told = endpoint.env
        self.sm, self.s3 = self.client("sagemaker"), self.client("s3")
        self.s3.create_bucket(Bucket="canary")

    def client(self, service: str) -> Any:
        return client(self.told, service)

    def configure(self, model: str) -> None:
        """A model and an endpoint configuration of that name."""
        self.s3.put_object(Bucket="canary", Key=f"{model}.tar.gz", Body=_packed(model))
        container = {
            "Image": IMAGE,
            "ModelDataUrl": f"s3://canary/{model}.tar.gz",
            "Environment": {"SAGEMAKER_PROGRAM": "inference.py"},
        }
        self.sm.create_model(ModelName=model, PrimaryContainer=container, ExecutionRoleArn=ROLE)
        variant = {
            "VariantName": VARIANT,
            "ModelName": model,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 4,
        }
        self.sm.create_endpoint_config(EndpointConfigName=model, ProductionVariants=[variant])

    def settled(self) -> tuple[dict, list[str]]:
        """The endpoint's description when it is settled, and the states on the way."""
        states: list[str] = []
        while True:
            found = self.sm.describe_endpoint(EndpointName=NAME)
            if found["EndpointStatus"] not in states[-1:]:
                states.append(found["EndpointStatus"])
            if states[-1] not in BUSY:
                return found, states
            time.sleep(0.05)


def _packed(model: str) -> bytes:
    """A model.tar.gz."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in (("code/inference.py", HANDLERS), ("name", model)):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()


def deployment(wait: int, size: int, alarm: str) -> dict:
    """A canary's DeploymentConfig."""
    routing = {
        "Type": "CANARY",
        "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": size},
        "WaitIntervalInSeconds": wait,
    }
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": 0,
            "MaximumExecutionTimeoutInSeconds": 1800,
        },
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]},
    }


def deploy(cloud: Cloud, load: Load, model: str, wait: int, size: int) -> Deployed:
    """An update to ``model``, with an alarm on the errors of its fleet alone."""
    dimensions = {"EndpointName": NAME, "VariantName": VARIANT, "EndpointConfigName": model}
    cloud.client("cloudwatch").put_metric_alarm(
        AlarmName=f"{model}-errors",
        Namespace="AWS/SageMaker",
        MetricName="Invocation5XXErrors",
        Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=0.05,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="notBreaching",
    )
    before, began = len(load.ended), time.monotonic()
    cloud.sm.update_endpoint(
        EndpointName=NAME,
        EndpointConfigName=model,
        DeploymentConfig=deployment(wait, size, f"{model}-errors"),
    )
    found, states = cloud.settled()
    return Deployed(
        model=model,
        status=found["EndpointStatus"],
        serves=found["EndpointConfigName"],
        reason=found.get("FailureReason", ""),
        seconds=round(time.monotonic() - began, 1),
        answered=dict(counted(load.ended[before:])),
        states=states,
    )


@contextmanager
def served(state: Path) -> Iterator[Cloud]:
    """An endpoint that serves the first model."""
    with serve(state) as endpoint:
        cloud = Cloud(endpoint)
        for model in ("first", "bad", "second"):
            cloud.configure(model)
        cloud.sm.create_endpoint(EndpointName=NAME, EndpointConfigName="first")
        found, _ = cloud.settled()
        if found["EndpointStatus"] != "InService":
            raise SystemExit(f"the first model does not serve: {found.get('FailureReason')}")
        yield cloud


def rehearse(state: Path, clients: int, wait: int, size: int) -> tuple[list[Deployed], Load]:
    """Both deployments under load, and the load with every request's end."""
    asked = {"Body": b"x", "ContentType": "text/plain"}
    with served(state) as cloud, Load(cloud.told, NAME, lambda _: asked, clients) as load:
        deployed = [deploy(cloud, load, model, wait, size) for model in ("bad", "second")]
    return deployed, load


def counted(ended: Sequence[Ended]) -> Counter[str]:
    """Return the number of requests by the model that answered, ``error`` and ``lost``."""
    return Counter("error" if BAD in one.model_error else one.answer or "lost" for one in ended)


def faults(deployed: list[Deployed], load: Load) -> list[str]:
    """Return the expectations that were not met; empty if all were."""
    bad, good = deployed
    found = []
    if bad.serves != "first" or "RollingBack" not in bad.states or "alarm" not in bad.reason:
        found.append(f"the bad model was not rolled back by the alarm: {bad}")
    if good.serves != "second" or good.reason:
        found.append(f"the good model did not go through: {good}")
    counts = counted(load.ended)
    if counts["lost"]:
        found.append(f"{counts['lost']} requests were lost: {load.lost[:3]}")
    if not counts["error"] or not counts["second"]:
        found.append(f"the load saw no canary: {dict(counts)}")
    return found


@app.command()
def main(
    clients: Annotated[int, typer.Option(help="clients that ask without a pause")] = 4,
    wait: Annotated[int, typer.Option(help="WaitIntervalInSeconds after each shift")] = 10,
    size: Annotated[int, typer.Option(help="the canary's share of the requests, in %")] = 20,
    json_file: JsonFile = None,
) -> None:
    """Rehearses a canary that must be rolled back, and one that must go through."""
    with tempfile.TemporaryDirectory() as folder:
        deployed, load = rehearse(Path(folder) / "state", clients, wait, size)
    rows = []
    for each in deployed:
        counts = [each.answered.get(k, 0) for k in ("first", "second", "error", "lost")]
        rows.append((each.model, " → ".join(each.states), each.serves, each.seconds, *counts))
    columns = ("model", "states", "serves then", "s", "first", "second", "its errors", "lost")
    show_table(columns, rows, "", 140)
    for each in deployed:
        if each.reason:
            print(f"{each.model}: {each.reason}")
    total, counts = len(load.ended), counted(load.ended)
    print(f"{total} requests by {clients} clients, {counts['lost']} lost")
    wrong = faults(deployed, load)
    found = {"deployments": [asdict(each) for each in deployed], "requests": total}
    keep(json_file, found | {"counts": dict(counts), "faults": wrong})
    print("\n".join(wrong))
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    app()
