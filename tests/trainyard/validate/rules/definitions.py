"""A definition with nothing to complain of, made by hand, and ways to change it."""

from collections.abc import Callable
from copy import deepcopy
from operator import delitem, setitem
from typing import Any

from trainyard.language.definition_document import Document, iter_steps

Change = Callable[[dict[str, Any]], None]
ROLE = "arn:aws:iam::111122223333:role/pipeline"
KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
CPU_IMAGE = f"{REGISTRY}/pytorch-training:2.8.0-cpu-py312"
GPU_IMAGE = f"{REGISTRY}/pytorch-training:2.8.0-gpu-py312"
SMP_IMAGE = "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu"
TAGS = [{"Key": "project", "Value": "a"}, {"Key": "team", "Value": "b"}]
TIMES = {"IntervalSeconds": 60, "BackoffRate": 2.0, "MaxAttempts": 5}
RETRIES = [{"ExceptionType": ["SageMaker.CAPACITY_ERROR"], **TIMES}]
CACHE = {"Enabled": True, "ExpireAfter": "P30D"}
VPC = {"Subnets": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
WAIT = "StoppingCondition.MaxWaitTimeInSeconds"
RUNTIME = "StoppingCondition.MaxRuntimeInSeconds"


def run_uri(*parts: str) -> dict[str, Any]:
    values = ["s3://bucket/runs", {"Get": "Execution.PipelineExecutionId"}, *parts]
    return {"Std:Join": {"On": "/", "Values": values}}


def s3_channel(name: str, uri: Any, mode: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": mode}


def file_system_channel(kind: str = "FSxLustre", directory: str = "/abcd/data") -> dict[str, Any]:
    source = {
        "FileSystemId": "fs-0123456789abcdef0",
        "FileSystemType": kind,
        "FileSystemAccessMode": "ro",
        "DirectoryPath": directory,
    }
    channel = {"ChannelName": "corpus", "InputMode": "File"}
    return {**channel, "DataSource": {"FileSystemDataSource": source}}


def _input(name: str, uri: Any, distribution: str = "FullyReplicated") -> dict[str, Any]:
    s3 = {
        "S3Uri": uri,
        "LocalPath": f"/opt/ml/processing/input/{name}",
        "S3DataType": "S3Prefix",
        "S3InputMode": "File",
        "S3DataDistributionType": distribution,
        "S3CompressionType": "None",
    }
    return {"InputName": name, "S3Input": s3}


def _processing(name: str, machine: str, count: int, image: str, inputs: list) -> dict[str, Any]:
    place = {"S3Uri": run_uri(name, "out"), "LocalPath": "/opt/ml/processing/output/out"}
    output = {"OutputName": "out", "S3Output": {**place, "S3UploadMode": "EndOfJob"}}
    cluster = {"InstanceType": machine, "InstanceCount": count, "VolumeSizeInGB": 100}
    return {
        "Name": name,
        "Type": "Processing",
        "Arguments": {
            "ProcessingResources": {"ClusterConfig": cluster},
            "AppSpecification": {
                "ImageUri": image,
                "ContainerEntrypoint": ["/bin/bash", "code/steps/container.sh", name],
                "ContainerArguments": ["--shard_mb", "64", "--key", "a"],
            },
            "RoleArn": ROLE,
            "ProcessingInputs": inputs,
            "ProcessingOutputConfig": {"Outputs": [output], "KmsKeyId": KEY},
            "Environment": {"PYTHONPATH": "/code"},
            "NetworkConfig": {"EnableNetworkIsolation": False, "VpcConfig": deepcopy(VPC)},
            "StoppingCondition": {"MaxRuntimeInSeconds": 7200},
            "Tags": deepcopy(TAGS),
        },
        "CacheConfig": dict(CACHE),
        "RetryPolicies": deepcopy(RETRIES),
    }


def _training() -> dict[str, Any]:
    data = {"Get": "Steps.Shard.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"}
    steps = {"Std:Join": {"On": "", "Values": [{"Get": "Parameters.MaxSteps"}]}}
    return {
        "Name": "Train",
        "Type": "Training",
        "Arguments": {
            "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": GPU_IMAGE},
            "HyperParameters": {
                "workload": "language_model",
                "workload_config": '{"layers":24,"dim":2048}',
                "strategy": "fsdp",
                "shard_degree": "8",
                "tensor_parallel": "1",
                "pipeline_parallel": "1",
                "max_steps": steps,
                "global_batch": "128",
                "micro_batch": "4",
                "learning_rate": "0.001",
                "shuffle": "windowed",
                "checkpoint_interval": "500",
                "mlflow_tracking_uri": "environment",
            },
            "InputDataConfig": [
                s3_channel("train", data, "FastFile"),
                s3_channel("validation", data, "FastFile"),
                s3_channel("code", "s3://bucket/code/590ee62fe4b1ad67", "File"),
                s3_channel("sm_drivers", "s3://bucket/code/da26101512f74537", "File"),
            ],
            "ResourceConfig": {
                "InstanceType": {"Get": "Parameters.TrainInstanceType"},
                "InstanceCount": {"Get": "Parameters.TrainInstanceCount"},
                "VolumeSizeInGB": 500,
            },
            "VpcConfig": deepcopy(VPC),
            "RoleArn": ROLE,
            "StoppingCondition": {"MaxRuntimeInSeconds": 86_400},
            "OutputDataConfig": {"S3OutputPath": run_uri("train"), "KmsKeyId": KEY},
            "CheckpointConfig": {
                "S3Uri": "s3://bucket/checkpoints/547e3e6b7299d46d",
                "LocalPath": "/opt/ml/checkpoints",
            },
            "Environment": {"NCCL_DEBUG": "WARN"},
            "EnableManagedSpotTraining": False,
            "EnableNetworkIsolation": False,
            "EnableInterContainerTrafficEncryption": False,
            "Tags": deepcopy(TAGS),
        },
        "CacheConfig": dict(CACHE),
        "RetryPolicies": deepcopy(RETRIES),
    }


def _make_typed_step(
    kind: str, name: str, arguments: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {"Name": name, "Type": kind, "Arguments": arguments, **more}


def _tuning() -> dict[str, Any]:
    machines = {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30}
    definition = {
        "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": CPU_IMAGE},
        "StaticHyperParameters": {"epochs": "3"},
        "InputDataConfig": [s3_channel("train", "s3://bucket/small", "File")],
        "ResourceConfig": machines,
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "OutputDataConfig": {"S3OutputPath": run_uri("tune")},
        "RoleArn": ROLE,
    }
    limits = {"MaxNumberOfTrainingJobs": 4, "MaxParallelTrainingJobs": 2}
    arguments = {
        "HyperParameterTuningJobConfig": {"Strategy": "Bayesian", "ResourceLimits": limits},
        "TrainingJobDefinition": definition,
        "Tags": deepcopy(TAGS),
    }
    return _make_typed_step("Tuning", "Tune", arguments)


def _transform() -> dict[str, Any]:
    data = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/batch"}}
    arguments = {
        "ModelName": "model",
        "TransformInput": {"DataSource": data},
        "TransformOutput": {"S3OutputPath": run_uri("score"), "KmsKeyId": KEY},
        "TransformResources": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
        "Tags": deepcopy(TAGS),
    }
    return _make_typed_step("Transform", "Score", arguments)


def _lambda() -> dict[str, Any]:
    function = "arn:aws:lambda:us-east-1:111122223333:function:notify"
    own = {"FunctionArn": function, "OutputParameters": []}
    return _make_typed_step("Lambda", "Notify", {"text": "done"}, **own)


def _condition() -> dict[str, Any]:
    container = {"Image": f"{REGISTRY}/pytorch-inference:2.6.0-cpu-py312"}
    container["ModelDataUrl"] = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}
    package = {"InferenceSpecification": {"Containers": [container]}}
    register = _make_typed_step(
        "RegisterModel", "Register", {"ModelPackageGroupName": "group", **package}
    )
    publish, archive = (
        _processing(name, "ml.m5.xlarge", 1, CPU_IMAGE, [_input("in", "s3://bucket/in")])
        for name in ("Publish", "Archive")
    )
    arguments = {
        "Conditions": [{"Type": "Equals", "LeftValue": "a", "RightValue": "a"}],
        "IfSteps": [register, publish],
        "ElseSteps": [archive],
    }
    return _make_typed_step("Condition", "Verdict", arguments)


def valid() -> dict[str, Any]:
    """Two processing instances, two nodes of eight A100, and one step of each other kind."""
    raw = _input("raw", {"Get": "Parameters.InputUri"}, "ShardedByS3Key")
    model = _input("model", {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"})
    return {
        "Version": "2020-12-01",
        "Parameters": [
            {"Name": "InputUri", "Type": "String", "DefaultValue": "s3://corpus/raw"},
            {"Name": "TrainInstanceType", "Type": "String", "DefaultValue": "ml.p4d.24xlarge"},
            {"Name": "TrainInstanceCount", "Type": "Integer", "DefaultValue": 2},
            {"Name": "MaxSteps", "Type": "Integer", "DefaultValue": 100_000},
        ],
        "Steps": [
            _processing("Shard", "ml.m5.4xlarge", 2, CPU_IMAGE, [raw]),
            _training(),
            _processing("Evaluate", "ml.g5.2xlarge", 1, GPU_IMAGE, [model]),
            _tuning(),
            _transform(),
            _lambda(),
            _condition(),
        ],
    }


def document(definition: dict[str, Any]) -> Document:
    parameters = {entry["Name"]: entry for entry in definition["Parameters"]}
    steps = tuple(iter_steps(definition["Steps"]))
    return Document(document=definition, parameters=parameters, steps=steps)


def _step(definition: dict[str, Any], name: str) -> dict[str, Any]:
    verdict = definition["Steps"][-1]["Arguments"]
    steps = [*definition["Steps"], *verdict["IfSteps"], *verdict["ElseSteps"]]
    return next(step for step in steps if step["Name"] == name)


def _place(definition: dict[str, Any], step: str, path: str) -> tuple[Any, Any]:
    """The object that holds what ``path`` names, and the name in it.

    ``InputDataConfig.0.InputMode`` in the arguments; ``/CacheConfig`` in the step itself.
    """
    holder = _step(definition, step)
    *before, last = path.removeprefix("/").split(".")
    for key in before if path.startswith("/") else ["Arguments", *before]:
        holder = holder[int(key)] if isinstance(holder, list) else holder.setdefault(key, {})
    return holder, int(last) if isinstance(holder, list) else last


def _make_change(step: str, path: str, change: Callable[[Any, Any], Any]) -> Change:
    return lambda definition: change(*_place(definition, step, path))


def put(step: str, path: str, value: Any) -> Change:
    """Set what is at ``path``."""
    return _make_change(step, path, lambda holder, key: setitem(holder, key, deepcopy(value)))


def drop(step: str, path: str) -> Change:
    """Take away what is at ``path``."""
    return _make_change(step, path, delitem)


def add(step: str, path: str, value: Any) -> Change:
    """Append to the list at ``path``."""
    return _make_change(step, path, lambda holder, key: holder[key].append(deepcopy(value)))


def depends_on(step: str, *others: str) -> Change:
    """Let the step wait for others."""
    return put(step, "/DependsOn", list(others))


def hyper(step: str, **values: str) -> Change:
    """Set hyperparameters."""
    return _make_change(step, "HyperParameters", lambda holder, key: holder[key].update(values))


def default(parameter: str, value: Any) -> Change:
    """Set a parameter's default."""

    def change(definition: dict[str, Any]) -> None:
        [entry] = [each for each in definition["Parameters"] if each["Name"] == parameter]
        entry["DefaultValue"] = value

    return change
