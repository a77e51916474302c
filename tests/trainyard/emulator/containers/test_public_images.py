"""Images made of what others publish, trained and asked by their own clients.

Each test depends on packages of PyPI and holds none of their text:
multi-model-server (github.com/awslabs/multi-model-server, Apache 2.0), sagemaker-inference and
sagemaker-training (github.com/aws/sagemaker-inference-toolkit and sagemaker-training-toolkit,
Apache 2.0), mlflow (github.com/mlflow/mlflow, Apache 2.0), sagemaker-mlops
(github.com/aws/sagemaker-python-sdk, Apache 2.0). docs/containers.md has the public
examples in which they were tried.
"""

import importlib.metadata
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest
from botocore.exceptions import ClientError

from scripts.build_image import iter_mounts, read_pip_settings
from tests.container_images import BASE, build, make_base, needs_engine
from tests.trainyard.emulator.harness import ROLE, Cloud, cloud, taken_for_aws, training, until
from trainyard.emulator.containers.container_engine import (
    build_limit_options,
    find_engine,
    select_client_variables,
)

pytestmark = [pytest.mark.sweep, needs_engine, pytest.mark.timeout(900)]  # their packages: minutes
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
PYTHON = f"""
FROM {BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends SYSTEM
RUN python3 -m venv /opt/python
ENV PATH=/opt/python/bin:$PATH
"""
"""Stands in for the base images of others, such as ``python:3.11-slim``."""


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Cloud]:
    make_base()
    with cloud(tmp_path / "aws") as found:
        yield found


def build_public(folder: Path, name: str, dockerfile: str, packages: str = "") -> str:
    """Build an image with Debian's ``packages``; return its URI in ECR. pip has this machine's
    settings meanwhile.
    """
    (folder / "Dockerfile").write_text(PYTHON.replace("SYSTEM", packages or "nginx") + dockerfile)
    engine = find_engine()
    options = ["--network", "host"]
    if engine.is_podman:
        options += build_limit_options()
        for mount in iter_mounts(read_pip_settings(), folder / "pip.conf"):
            options += ["--volume", f"{mount}:ro"]
    return f"{REGISTRY}/{build(folder, f'trainyard-tests/{name}', *options)}"


def archive(**files: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


HANDLER = """
import os
factor = None
def handle(data, context):
    global factor
    if factor is None:
        with open(os.path.join(context.system_properties.get("model_dir"), "factor")) as file:
            factor = float(file.read())
    return None if data is None else [factor * float(row["body"]) for row in data]
"""
SERVER = """
RUN pip install multi-model-server sagemaker-inference "setuptools<81"
COPY handler.py /opt/handler.py
ENTRYPOINT ["python", "-c", "from sagemaker_inference import model_server as server; \\
    server.start_model_server(handler_service='/opt/handler.py:handle')"]
"""


def test_the_multi_model_server_serves_two_models(aws: Cloud, tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(HANDLER)
    java = "openjdk-17-jre-headless"
    image = build_public(tmp_path, "multi-model-server:1", SERVER, java)
    for name, factor in (("double", "2"), ("half", "0.5")):
        aws.put(f"many/{name}.tar.gz", archive(factor=factor))
    container = {
        "Image": image,
        "ModelDataUrl": "https://s3-us-east-1.amazonaws.com/bkt/many/",
        "Mode": "MultiModel",
    }
    aws.sm.create_model(ModelName="many", ExecutionRoleArn=ROLE, Containers=[container])
    variant = {"VariantName": "all", "ModelName": "many", "InstanceType": "ml.m5.xlarge",
               "InitialInstanceCount": 1}  # fmt: skip
    aws.sm.create_endpoint_config(EndpointConfigName="many", ProductionVariants=[variant])
    aws.sm.create_endpoint(EndpointName="many", EndpointConfigName="many")
    describe = lambda: aws.sm.describe_endpoint(EndpointName="many")  # noqa: E731
    until(lambda: describe()["EndpointStatus"] != "Creating")
    assert describe()["EndpointStatus"] == "InService", describe().get("FailureReason")

    def invoke(name: str) -> float:
        target = {"TargetModel": f"{name}.tar.gz"}
        answer = aws.runtime.invoke_endpoint(EndpointName="many", Body="21", **target)
        return json.loads(answer["Body"].read())

    assert [invoke("double"), invoke("half"), invoke("double")] == [42.0, 10.5, 42.0]
    aws.put("many/broken.tar.gz", archive(other="1"))
    with pytest.raises(ClientError) as refused:
        invoke("broken")
    assert refused.value.response["Error"]["Code"] == "ModelError"


SCRIPT = """
import argparse, json, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float)
scale = parser.parse_args().scale
if scale < 0:
    raise ValueError("scale is negative")
host, hosts = os.environ["SM_CURRENT_HOST"], json.loads(os.environ["SM_HOSTS"])
rows = (pathlib.Path(os.environ["SM_CHANNEL_TRAIN"]) / "rows").read_text().split()
total = scale * sum(map(float, rows))
(pathlib.Path(os.environ["SM_MODEL_DIR"]) / f"{host}.json").write_text(json.dumps([total, hosts]))
"""
TOOLKIT = """
RUN pip install sagemaker-training "setuptools<81"
COPY script.py /opt/ml/code/script.py
ENV SAGEMAKER_PROGRAM=script.py
"""


def test_the_training_toolkit_runs_a_script_of_the_image_on_two_nodes(aws: Cloud, tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    image = build_public(tmp_path, "training-toolkit:1", TOOLKIT, "gcc g++ python3-dev")
    aws.put("data/rows", "1 2 3\n")
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://bkt/data/"}
    request = training("true", 2) | {
        "AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File"},
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}],
    }
    for name, scale in (("sound", "2.5"), ("faulty", "-1")):
        hyperparameters = {"HyperParameters": {"scale": scale}}
        aws.sm.create_training_job(TrainingJobName=name, **request | hyperparameters)
    done = aws.wait_for_training("sound")
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    packed = io.BytesIO(aws.get("models/sound/output/model.tar.gz"))
    with tarfile.open(fileobj=packed) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        results = {name: json.load(file) for name, file in files.items() if file}
    hosts = ["algo-1", "algo-2"]
    assert results == {f"{host}.json": [15.0, hosts] for host in hosts}
    reason = aws.wait_for_training("faulty")["FailureReason"]
    assert reason.startswith("AlgorithmError: ValueError: scale is negative (algo-")


SAVE = """
import mlflow.sklearn, pandas
from sklearn.linear_model import LinearRegression
rows = pandas.DataFrame({"x": [0.0, 1.0, 2.0]})
mlflow.sklearn.save_model(LinearRegression().fit(rows, [1.0, 3.0, 5.0]), "/out/model")
"""


def test_mlflow_deploys_its_image_and_transforms_with_it(aws: Cloud, tmp_path: Path) -> None:
    image, model = build_mlflow(tmp_path), tmp_path / "out/model"
    place = {
        "execution_role_arn": ROLE,
        "bucket": "bkt",
        "image_url": image,
        "instance_type": "ml.m5.large",
        "env": {"MLFLOW_MODELS_WORKERS": "1"},
    }
    aws.put("rows/a.csv", "x\n3\n4\n")
    with taken_for_aws(aws):
        from mlflow import sagemaker
        from mlflow.deployments import get_deploy_client

        client = get_deploy_client("sagemaker:/us-east-1")
        client.create_deployment("line", str(model), config=place | {"timeout_seconds": 300})
        answer = client.predict("line", pandas.DataFrame({"x": [10.0, 20.0]}))
        assert [round(value, 6) for value in answer.get_predictions()[0]] == [21.0, 41.0]
        client.delete_deployment("line", config={"timeout_seconds": 60})
        sagemaker.deploy_transform_job(
            job_name="rows",
            model_uri=str(model),
            s3_input_data_type="S3Prefix",
            s3_input_uri="s3://bkt/rows/",
            content_type="text/csv",
            s3_output_path="s3://bkt/answers",
            split_type="None",
            region_name="us-east-1",
            timeout_seconds=300,
            **{name: place[name] for name in place if name != "env"},
        )
    assert aws.keys("answers") == ["answers/a.csv.out"]
    values = json.loads(aws.get("answers/a.csv.out"))["predictions"]
    assert [round(value, 6) for value in values] == [7.0, 9.0]


def build_mlflow(folder: Path) -> str:
    """Build the image that MLflow writes a Dockerfile for, and save a model by it at ``out/model``,
    whose requirements it meets thus without an index; return its URI.
    """
    from mlflow.models.docker_utils import generate_dockerfile

    generate_dockerfile(
        output_dir=str(folder),
        base_image="python:3.11-slim",
        model_install_steps='RUN python -c "from mlflow.models import container as C; '
        'C._install_pyfunc_deps(None, False)"',
        entrypoint="import sys; from mlflow.models import container as C; "
        "C._init(sys.argv[1], 'local')",
        env_manager="local",
        disable_env_creation_at_runtime=False,
    )
    lines = (folder / "Dockerfile").read_text().splitlines()
    rest = [line for line in lines if not line.startswith("FROM ")]
    image = build_public(folder, "mlflow:1", "RUN pip install wheel\n" + "\n".join(rest))
    (folder / "out").mkdir()
    engine = find_engine()
    limits = build_limit_options() if engine.is_podman else []
    mount = ["--network", "none", "--volume", f"{folder}/out:/out", "--entrypoint", "python"]
    run = [engine.command, "run", "--rm", *limits, *mount, image.partition("/")[2], "-c", SAVE]
    subprocess.run(run, check=True, env=select_client_variables(), capture_output=True)
    return image


STEPS = """
import os, sys
from sagemaker.mlops.workflow.function_step import step
from sagemaker.mlops.workflow.pipeline import Pipeline

compute = {"image_uri": sys.argv[1], "instance_type": "ml.m5.xlarge", "role": sys.argv[2]}

@step(name="add", **compute)
def add(a, b):
    return {"sum": a + b, "marked": os.path.exists("/opt/mark")}

@step(name="double", **compute)
def double(found):
    if found["sum"] < 0:
        raise ValueError("the sum is negative")
    return [2 * found["sum"], found["marked"]]

pipeline = Pipeline(name="steps", steps=[double(add(20, int(sys.argv[3])))])
pipeline.upsert(role_arn=sys.argv[2])
execution = pipeline.start()
try:
    execution.wait(delay=1, max_attempts=300)
    print("result", execution.result(step_name="double"))
except Exception:
    print("reasons", [found.get("FailureReason") for found in execution.list_steps()])
"""


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="@step needs the image's Python: 3.11")
def test_function_steps_run_in_an_image(aws: Cloud, tmp_path: Path) -> None:
    packages = ("sagemaker-mlops", "sagemaker-train", "sagemaker-core")
    same = " ".join(f"{name}=={importlib.metadata.version(name)}" for name in packages)
    image = build_public(tmp_path, "steps:1", f"RUN pip install {same} && touch /opt/mark\n")
    script = tmp_path / "steps.py"
    script.write_text(STEPS)

    def run(number: int) -> str:
        command = [sys.executable, str(script), image, ROLE, str(number)]
        environment = os.environ | aws.endpoint.env
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True,
                              cwd=tmp_path).stdout  # fmt: skip

    assert "result [42, True]" in run(1)
    assert "the sum is negative" in run(-21)
