"""The role that jobs assume: what their requests name, and nothing else.

Actions are those of the developer guide, "How to use SageMaker AI execution roles", sections
CreateProcessingJob, CreateTrainingJob and CreateModel, and are bound to what each request names.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.language.step_types import step_type
from trainyard.language.steps import Step
from trainyard.permissions.containers import containers, network
from trainyard.permissions.statements import Statement, minimal
from trainyard.permissions.subject import Subject
from trainyard.permissions.values import folder_patterns, split_uri

BY_PIPELINE = ("Condition", "Fail", "RegisterModel", "Lambda", "Callback")
"""Step types in which no job runs: the service does them with the pipeline's role."""

NOT_DERIVED = {
    "Transform": "its job assumes the role of the model that it names",
    "Tuning": "the roles, data and images of its jobs stand in training definitions",
    "AutoML": "no request says what the jobs of that service read",
    "Job": "what it touches depends on its category",
    "QualityCheck": "its container reads baselines that no request names",
    "ClarifyCheck": "its container calls a model that it deploys for the check",
    "EndpointConfig": "whoever serves a model has a role of their own",
    "Endpoint": "whoever serves a model has a role of their own",
    "InferenceComponent": "whoever serves a model has a role of their own",
    "EMR": "clusters have roles of another service",
    "EMRServerless": "applications have roles of another service",
    "ForEach": "what its steps touch may differ from item to item",
    "Lineage": "its entities may be any account's",
    "Cleanup": "to delete is a permission to give by hand",
}
"""Step type → why no permissions are derived for it here."""

_IMAGE = re.compile(
    r"(\d{12})\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)(?:[:@].+)?"
)
_MLFLOW = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:mlflow-tracking-server/[\w-]+")
MLFLOW_ACTIONS = tuple(
    f"sagemaker-mlflow:{action}"
    for action in (
        "CreateExperiment",
        "CreateRun",
        "GetExperiment",
        "GetExperimentByName",
        "GetRun",
        "LogBatch",
        "LogInputs",
        "LogMetric",
        "LogParam",
        "SetTag",
        "UpdateRun",
    )
)
"""What following a run needs of a managed MLflow server (its REST calls by their IAM names)."""


@dataclass(slots=True)
class Needs:
    """What the requests of one role's jobs name, collected step by step."""

    reads: set[tuple[str, str]] = field(default_factory=set)
    """Bucket and key pattern."""

    writes: set[tuple[str, str]] = field(default_factory=set)
    data_keys: set[str] = field(default_factory=set)
    volume_keys: set[str] = field(default_factory=set)
    repositories: set[str] = field(default_factory=set)
    log_groups: set[str] = field(default_factory=set)
    subnets: set[str] = field(default_factory=set)
    security_groups: set[str] = field(default_factory=set)
    file_systems: bool = False
    trackers: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Collector:
    """Reads one step's Arguments into :class:`Needs`."""

    subject: Subject
    step: Step
    needs: Needs

    def text(self, value: Any, field: str) -> str:
        return self.subject.values.text(value, f"step {self.step.name}: {field}")

    def read(self, uri: Any, field: str) -> None:
        self.needs.reads |= self._folder(uri, field)

    def write(self, uri: Any, field: str) -> None:
        """What is written goes below the prefix; an object of that very name never does."""
        self.needs.writes |= {(b, key) for b, key in self._folder(uri, field) if key[-1:] == "*"}

    def _folder(self, uri: Any, field: str) -> set[tuple[str, str]]:
        where = f"step {self.step.name}: {field}"
        bucket, key = split_uri(self.text(uri, field), where)
        return {(bucket, pattern) for pattern in folder_patterns(key)}

    def image(self, uri: Any, field: str) -> None:
        """An image in ECR.

        Raises:
            DefinitionError: it is elsewhere; no policy of ECR's can name it.
        """
        image = self.text(uri, field)
        match = _IMAGE.fullmatch(image)
        if not match:
            raise DefinitionError(
                f"step {self.step.name}: {field}: {image!r} is no image in Amazon ECR "
                "(account.dkr.ecr.region.amazonaws.com/repository:tag)"
            )
        account, region, repository = match.groups()
        arn = f"arn:{self.subject.partition}:ecr:{region}:{account}:repository/{repository}"
        self.needs.repositories.add(arn)

    def key(self, key: Any, into: set[str], field: str) -> None:
        if key:
            into.add(key_arn(self.subject, self.text(key, field)))

    def network(self, vpc: Mapping[str, Any] | None) -> None:
        given = vpc or {}
        self.needs.subnets |= {self.text(s, "Subnets") for s in given.get("Subnets", ())}
        groups = given.get("SecurityGroupIds", ())
        self.needs.security_groups |= {self.text(g, "SecurityGroupIds") for g in groups}

    def trackers(self, strings: Mapping[str, Any] | None) -> None:
        """A managed MLflow server that an environment variable or a hyperparameter names."""
        for name, value in (strings or {}).items():
            if isinstance(value, str) and _MLFLOW.fullmatch(value):
                self.needs.trackers.add(self.text(value, name))

    def log(self) -> None:
        if job := step_type(self.step.type).job:
            self.needs.log_groups.add(job.log_group)


def _processing(c: Collector, a: Mapping[str, Any]) -> None:
    c.log()
    c.image(a["AppSpecification"]["ImageUri"], "AppSpecification.ImageUri")
    for entry in a.get("ProcessingInputs", ()):
        _only(c, entry, "S3Input", "ProcessingInputs")
        _prefix_only(c, entry["S3Input"], "ProcessingInputs")
        c.read(entry["S3Input"]["S3Uri"], f"ProcessingInputs[{entry['InputName']}]")
    outputs = a.get("ProcessingOutputConfig") or {}
    for entry in outputs.get("Outputs", ()):
        _only(c, entry, "S3Output", "ProcessingOutputConfig")
        c.write(entry["S3Output"]["S3Uri"], f"Outputs[{entry['OutputName']}]")
    c.key(outputs.get("KmsKeyId"), c.needs.data_keys, "ProcessingOutputConfig.KmsKeyId")
    cluster = a["ProcessingResources"]["ClusterConfig"]
    c.key(cluster.get("VolumeKmsKeyId"), c.needs.volume_keys, "ClusterConfig.VolumeKmsKeyId")
    c.network((a.get("NetworkConfig") or {}).get("VpcConfig"))
    c.trackers(a.get("Environment"))


def _training(c: Collector, a: Mapping[str, Any]) -> None:
    c.log()
    c.image(a["AlgorithmSpecification"].get("TrainingImage"), "TrainingImage")
    for channel in a.get("InputDataConfig", ()):
        _channel(c, channel)
    c.write(a["OutputDataConfig"]["S3OutputPath"], "OutputDataConfig.S3OutputPath")
    c.key(a["OutputDataConfig"].get("KmsKeyId"), c.needs.data_keys, "OutputDataConfig.KmsKeyId")
    if checkpoints := a.get("CheckpointConfig"):
        c.read(checkpoints["S3Uri"], "CheckpointConfig.S3Uri")
        c.write(checkpoints["S3Uri"], "CheckpointConfig.S3Uri")
    for config in ("TensorBoardOutputConfig", "DebugHookConfig", "ProfilerConfig"):
        if uri := (a.get(config) or {}).get("S3OutputPath"):
            c.write(uri, f"{config}.S3OutputPath")
    resources = a["ResourceConfig"]
    c.key(resources.get("VolumeKmsKeyId"), c.needs.volume_keys, "ResourceConfig.VolumeKmsKeyId")
    c.network(a.get("VpcConfig"))
    c.trackers(a.get("Environment"))
    c.trackers(a.get("HyperParameters"))
    _source(c, a.get("HyperParameters"), "sagemaker_submit_directory")


def _channel(c: Collector, channel: Mapping[str, Any]) -> None:
    source, field = channel["DataSource"], f"InputDataConfig[{channel['ChannelName']}]"
    if "FileSystemDataSource" in source:
        c.needs.file_systems = True
        return
    _only(c, source, "S3DataSource", field)
    _prefix_only(c, source["S3DataSource"], field)
    c.read(source["S3DataSource"]["S3Uri"], field)


def _source(c: Collector, values: Mapping[str, Any] | None, name: str) -> None:
    """The archive of code that the toolkits of SDK 2's frameworks download; it may be in quotes."""
    uri = c.text((values or {}).get(name, ""), name).strip('"')
    if uri.startswith("s3://"):
        c.read(uri, name)


def _model(c: Collector, a: Mapping[str, Any]) -> None:
    for container in [*a.get("Containers", ()), a.get("PrimaryContainer")]:
        if container:
            c.image(container.get("Image"), "PrimaryContainer.Image")
            if uri := container.get("ModelDataUrl"):
                c.read(uri, "PrimaryContainer.ModelDataUrl")
            if source := container.get("ModelDataSource", {}).get("S3DataSource"):
                c.read(source["S3Uri"], "PrimaryContainer.ModelDataSource")
            _source(c, container.get("Environment"), "SAGEMAKER_SUBMIT_DIRECTORY")
    c.network(a.get("VpcConfig"))


COVERED: Mapping[str, Callable[[Collector, Mapping[str, Any]], None]] = {
    "Processing": _processing,
    "Training": _training,
    "Model": _model,
}


def _only(c: Collector, entry: Mapping[str, Any], kind: str, field: str) -> None:
    if not entry.get(kind):
        others = sorted(set(entry) - {"InputName", "OutputName", "AppManaged"})
        raise DefinitionError(
            f"step {c.step.name}: {field}: only {kind} is covered, not {others}; write that "
            "statement by hand"
        )


def _prefix_only(c: Collector, source: Mapping[str, Any], field: str) -> None:
    if source.get("S3DataType", "S3Prefix") != "S3Prefix":
        raise DefinitionError(
            f"step {c.step.name}: {field}: S3DataType {source['S3DataType']!r} names its objects "
            "in a file, which no policy can know; use S3Prefix, or write that statement by hand"
        )


def refuse_uncovered(subject: Subject) -> None:
    """Raises :class:`DefinitionError` for a step whose permissions are not derived here."""
    for step in subject.values.steps:
        if step.type not in COVERED and step.type not in BY_PIPELINE:
            why = NOT_DERIVED.get(step.type, "it is no type that is known here")
            raise DefinitionError(
                f"step {step.name}: permissions of a {step.type} step are not derived; there are "
                f"{', '.join(sorted([*COVERED, *BY_PIPELINE]))}: write its statements by hand, "
                f"for {why}"
            )
    if subject.document.get("MlflowConfig"):
        raise DefinitionError(
            "MlflowConfig: permissions of a pipeline that MLflow follows are not derived; name "
            "the tracking server in the training step, or write its statements by hand"
        )


def needs(subject: Subject, role: str) -> Needs:
    """What the jobs that assume ``role`` may touch.

    Raises:
        DefinitionError: a step's type, data source or image is not covered; names the step.
    """
    refuse_uncovered(subject)
    found = Needs()
    for step in subject.values.steps:
        collect = COVERED.get(step.type)
        if collect and _role_of(subject, step) == role:
            collect(Collector(subject, step, found), step.arguments)
    return found


def _role_of(subject: Subject, step: Step) -> str:
    field = step_type(step.type).role
    given = step.arguments.get(field)
    return subject.values.text(given, f"step {step.name}: {field}") if given else subject.role


def key_arn(subject: Subject, key: str) -> str:
    """A key's ARN from its ARN or its id; an alias' ARN stays one (see :func:`key_statement`)."""
    if key.startswith("arn:"):
        return key
    return subject.arn("kms", key if key.startswith("alias/") else f"key/{key}")


def key_statements(
    sid: str,
    keys: set[str],
    actions: tuple[str, ...],
    conditions: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
) -> Iterator[Statement]:
    """KMS permissions on ``keys``.

    An alias is no resource that IAM can grant cryptography on (KMS developer guide, "Use aliases to
    control access to KMS keys"): the grant is on keys that have it.
    """
    plain = tuple(sorted(key for key in keys if ":alias/" not in key))
    yield Statement(sid=sid, actions=actions, resources=plain, conditions=conditions or {})
    aliased = sorted(key for key in keys - set(plain))
    names = tuple(key.rpartition(":")[2] for key in aliased)
    yield Statement(
        sid=f"{sid}ByAlias",
        actions=actions,
        resources=minimal(f"{key.rpartition(':')[0]}:key/*" for key in aliased),
        conditions={
            **(conditions or {}),
            "ForAnyValue:StringEquals": {"kms:ResourceAliases": names},
        },
    )


def statements(subject: Subject, role: str) -> Iterator[Statement]:
    """The policy of a role that jobs assume.

    Raises:
        DefinitionError: see :func:`needs`.
    """
    found = needs(subject, role)
    yield from storage("Read", subject, found.reads, ("s3:GetObject",))
    yield from lists(subject, found.reads)
    yield from storage("Write", subject, found.writes, ("s3:PutObject",))
    yield from key_statements(
        "DataKeys", found.data_keys, ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey")
    )
    # A grant lets the service attach the encrypted volume; the condition, that nobody else gets it.
    grant = {"Bool": {"kms:GrantIsForAWSResource": ("true",)}}
    yield from key_statements("VolumeKeys", found.volume_keys, ("kms:CreateGrant",), grant)
    yield from containers(subject, found.repositories, found.log_groups)
    yield from network(subject, found.subnets, found.security_groups)
    yield Statement(
        sid="FileSystems",
        actions=("fsx:DescribeFileSystems",),
        resources=("*",) if found.file_systems else (),
    )
    yield Statement(sid="Tracking", actions=MLFLOW_ACTIONS, resources=tuple(sorted(found.trackers)))


def storage(
    sid: str, subject: Subject, patterns: set[tuple[str, str]], actions: tuple[str, ...]
) -> Iterator[Statement]:
    """Actions on the objects whose bucket and key match."""
    arns = (subject.bucket_arn(bucket, key) for bucket, key in patterns)
    yield Statement(sid=sid, actions=actions, resources=minimal(arns))


def lists(subject: Subject, patterns: set[tuple[str, str]]) -> Iterator[Statement]:
    """ListBucket, one statement a bucket: its condition names the bucket's own prefixes."""
    for number, bucket in enumerate(sorted({bucket for bucket, _ in patterns})):
        prefixes = minimal(key for owner, key in patterns if owner == bucket)
        yield Statement(
            sid=f"List{number or ''}",
            actions=("s3:ListBucket",),
            resources=(subject.bucket_arn(bucket),),
            conditions={"StringLike": {"s3:prefix": prefixes}},
        )
