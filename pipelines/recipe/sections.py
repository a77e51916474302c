"""The section ``data``: raw data (one input, or several with weights), or shards."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from steps.config import InstanceType, S3Uri, Section
from training.input_shares import Change, Mixture, check, check_steps

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"
"""Pattern of the name of a folder, a job's input, and a slice; readers skip other
names (_x, .x).
"""
MOST = 8
"""Most inputs: a processing job takes ten (API, ProcessingInputs), two of which are the code and a
tokenizer."""

Example = Literal["stdlib", "docstrings", "nycflights13", "digits"]


class Input(Section):
    """Raw data that a training draws a share of its samples from."""

    uri: S3Uri
    """S3 prefix of its raw objects."""

    name: str | None = Field(default=None, pattern=NAME, examples=["web"])
    """Name in weights, logs, and the slices of the evaluation. None: the last folder
    of its prefix.
    """

    weight: FiniteFloat | None = Field(default=None, gt=0)
    """Share of the training samples, relative to the other inputs' weights. None: no sample, until
    ``data.weight_changes`` gives it a weight; your own script reads the shards by itself, and takes
    no weights."""

    example: Example | None = None
    """Example data that ``pipelines.corpus`` creates and uploads there; None where the data is your
    own."""

    @property
    def folder_name(self) -> str:
        """Return its name, or the last folder of its prefix."""
        return self.name or self.uri.rstrip("/").rpartition("/")[2]


class Data(Section):
    """The data: raw ones (``input``, or ``inputs``), or ``shards``."""

    input: S3Uri | None = None
    """S3 prefix of the raw objects; the pipeline parameter InputUri overrides it for a run."""

    inputs: tuple[Input, ...] = Field(default=(), max_length=MOST)
    """Several inputs, each with a weight, instead of ``input``. No sample holds records of two of
    them; of equal records in two inputs, one stays. They are constant until the next upsert."""

    shards: S3Uri | None = Field(default=None, exclude_if=lambda shards: shards is None)
    """S3 prefix of a dataset that is written already, by another engine or another pipeline: the
    folders train, validation and test, each with shards and manifests (docs/shards.md). There is no
    shard step then; the pipeline begins at the training."""

    weight_changes: tuple[Change, ...] = ()
    """Other weights from an optimizer step on; needs inputs. A training that continues a checkpoint
    takes changes that come after its step (train.start_from)."""

    example: Example | None = None
    """Example data that ``pipelines.corpus`` creates and uploads to input; None where the data is
    your own."""

    @property
    def prefixes(self) -> dict[str, str]:
        """Return the inputs' names → S3 prefixes; empty where there is only one, without a name."""
        return {data_input.folder_name: data_input.uri for data_input in self.inputs}

    @property
    def mixture(self) -> Mixture | None:
        """Return the weights of the inputs; None where none has a weight."""
        if not self._weights:
            return None
        return Mixture(weights=self._weights, changes=self.weight_changes)

    @property
    def _weights(self) -> dict[str, float]:
        return {
            data_input.folder_name: data_input.weight
            for data_input in self.inputs
            if data_input.weight is not None
        }

    @property
    def examples(self) -> list[tuple[str, Example]]:
        """Return (S3 prefix, example that belongs there)."""
        pairs = [
            (self.input, self.example),
            *((data_input.uri, data_input.example) for data_input in self.inputs),
        ]
        return [(uri, example) for uri, example in pairs if uri and example]

    @model_validator(mode="after")
    def _one_or_several(self) -> Self:
        values = {"input": self.input, "inputs": self.inputs, "shards": self.shards}
        given_names = [name for name, value in values.items() if value]
        if len(given_names) != 1:
            which = f"{' and '.join(given_names)} are set" if given_names else "none is set"
            raise ValueError(
                f"input, inputs, shards: {which}; set input to the S3 prefix of raw data, inputs "
                "to some, or shards to that of a dataset"
            )
        if self.example and not self.input:
            raise ValueError(
                f"example: {self.example} is for input; "
                + ("give it to one of the inputs" if self.inputs else "remove it")
            )
        if self.weight_changes and not self.inputs:
            raise ValueError("weight_changes: need inputs, whose weights they change")
        return self

    @model_validator(mode="after")
    def _inputs_differ(self) -> Self:
        number_by_name: dict[str, int] = {}
        for number, data_input in enumerate(self.inputs):
            if not re.match(NAME, data_input.folder_name):
                raise ValueError(
                    f"inputs.{number}.uri: {data_input.uri} ends in no folder that can be a name "
                    "(letters, digits, - and _); set its name"
                )
            if (
                other := number_by_name.setdefault(data_input.folder_name.casefold(), number)
            ) != number:
                raise ValueError(
                    f"inputs.{number}: is called {data_input.folder_name}, as inputs.{other} is; "
                    "set another name"
                )
            self._check_apart(number, data_input)
        return self

    def _check_apart(self, number: int, data_input: Input) -> None:
        """Check that no prefix contains another."""
        for other, other_input in enumerate(self.inputs[:number]):
            # S3 compares letter by letter: raw/web also holds raw/web-old/a.txt.
            short, long = sorted((data_input.uri, other_input.uri), key=len)
            if long.startswith(short) or long.rstrip("/") == short.rstrip("/"):
                raise ValueError(
                    f"inputs.{number}.uri: {data_input.uri} and inputs.{other}.uri "
                    f"{other_input.uri} overlap, so objects would belong to both; end prefixes "
                    "with a slash, and name folders beside each other"
                )

    @model_validator(mode="after")
    def _weights_fit_inputs(self) -> Self:
        if not self.inputs:
            return self
        names = [data_input.folder_name for data_input in self.inputs]
        for change in self.weight_changes:
            if unknown := [name for name in change.weights if name not in names]:
                raise ValueError(
                    f"weight_changes: the weights after step {change.step} name {unknown[0]}, "
                    f"which is not one of inputs: {', '.join(names)}"
                )
        if not self._weights and not self.weight_changes:
            return self
        later = {name for change in self.weight_changes for name in change.weights}
        for number, data_input in enumerate(self.inputs):
            if data_input.weight is None and data_input.folder_name not in later:
                raise ValueError(
                    f"inputs.{number}.weight: is missing, and no change gives "
                    f"{data_input.folder_name} one; set it, or remove the input"
                )
        if not self._weights:
            raise ValueError("inputs: none of them has a weight to begin with; set one")
        check(self._weights, "inputs: weights")
        check_steps(self.weight_changes, "weight_changes")
        return self


# The recipe's section ``aws``: account, region, roles, bucket, network, encryption, tags.

RoleArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/\S+$",
        examples=["arn:aws:iam::111122223333:role/trainyard"],
    ),
]


def _digits(account: Any) -> Any:
    """Return an account number as text; YAML reads twelve digits without quotes as a number."""
    return str(account) if type(account) is int else account


AccountNumber = Annotated[
    str, Field(pattern=r"^\d{12}$", examples=["111122223333"]), BeforeValidator(_digits)
]


def account_in(arn: str) -> str | None:
    """Return the account number in an ARN; None if it is none."""
    parts = arn.split(":")
    return parts[4] if len(parts) > 5 else None


def other_account(account: str | None, roles: Mapping[str, str | None]) -> str | None:
    """Return which role is of another account than ``account``, or than the role before it; None
    when all are of one.

    Args:
        roles: field of section ``aws`` → ARN.
    """
    known_field = "account"
    for field, arn in roles.items():
        if arn is None:
            continue
        if account not in (None, account_in(arn)):
            return (
                f"aws.{field}: is {arn}, a role of account {account_in(arn)}; expected one of "
                f"{account}, as aws.{known_field} says"
            )
        account, known_field = account or account_in(arn), known_field if account else field
    return None


class Vpc(Section):
    """The network that jobs run in."""

    subnets: tuple[str, ...] = Field(min_length=1)
    """Subnet ids; EFA needs all nodes in one subnet."""

    security_groups: tuple[str, ...] = Field(min_length=1)
    """Security group ids; EFA needs a group that admits all traffic from itself."""


class Aws(Section):
    """Account settings, taken from the environment where a field is left out."""

    region: str | None = None
    """Region; default: AWS_REGION or AWS_DEFAULT_REGION."""

    account: AccountNumber | None = Field(default=None, exclude_if=lambda account: account is None)
    """Account number, in quotes. Roles of another account are refused, and upsert and start change
    nothing with the credentials of another one."""

    role: RoleArn | None = None
    """ARN of the role that the pipeline assumes; default: SAGEMAKER_PIPELINE_ROLE_ARN."""

    job_role: RoleArn | None = None
    """ARN of the role that the jobs assume; default: SAGEMAKER_JOB_ROLE_ARN, else
    the pipeline's.
    """

    bucket: str | None = Field(
        default=None, pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", examples=["my-bucket"]
    )
    """Bucket for code, shards, models and checkpoints; default: ARTIFACT_BUCKET."""

    prefix: str = Field(default="trainyard", pattern=r"^[\w.-]+(/[\w.-]+)*$")
    """Key prefix inside the bucket; the pipeline's name comes under it."""

    kms_key: str | None = None
    """KMS key (id, ARN or alias) for volumes and outputs; none means the account's default."""

    input_keys: tuple[str, ...] = Field(default=(), exclude_if=lambda keys: not keys)
    """KMS keys (ids, ARNs or aliases) of data that jobs only read, as of an input's bucket: the
    derived roles may decrypt with them."""

    vpc: Vpc | None = None
    """VPC of every job; none means the service's own network."""

    network_isolation: bool = False
    """Cut containers off from every network except the one between a job's instances."""

    encrypt_traffic: bool = False
    """Encrypt the traffic between a job's instances (slows down collectives)."""

    tags: dict[str, str] = Field(default_factory=dict)
    """Tags of the pipeline, its jobs and its model package group, for cost allocation."""


# The recipe's section ``budget``: what a run may cost.


class Budget(Section):
    """Limit on a run's cost; beyond it, or if the cost is unknown, plan and upsert fail, and start
    fails without --over-budget REASON.
    """

    usd_per_run: float | None = Field(default=None, gt=0)
    """USD for one run, counting the steps that the cache does not answer; None for no budget."""

    bound: Literal["limit", "seen", "uncached"] = "limit"
    """Sum that is compared with the budget. limit: every step that the cache does not answer takes
    its max_runtime_minutes, on demand. uncached: every step does, cached or not. seen: a step takes
    as long as its longest earlier run on the same machines; without one, its forecast that holds in
    nine of ten cases; without either, its limit."""


# The recipe's section ``deploy``: the endpoint that serves the group's model.

LATENCY_MINUTES = 3
"""Least minutes between shifts in which an alarm on the latency of two minutes can go off."""


class Comparison(Section):
    """Sequential comparison of the new model with the serving one while both answer.

    It may be looked at any time: whatever the number of looks, an equal model is rolled back with
    at most the probability ``error``.
    """

    quality: str | None = Field(default=None, pattern=r"^\w+(\.\w+)*$", examples=["bits_per_byte"])
    """Number in the model's JSON answer that says how good it is, as bits_per_byte; a dot leads
    into an object. Default: only errors are compared."""

    better: Literal["lower", "higher"] = "lower"
    """Whether an answer with a lower or a higher ``quality`` is the better one."""

    error: float = Field(default=0.05, gt=0, lt=0.5)
    """Probability of a false roll-back, of errors and quality together."""


class Deploy(Section):
    """The endpoint of the recipe's model, and how a new model comes into service."""

    endpoint: str = Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,32}$", examples=["my-endpoint"])
    """Name of the endpoint; of at most 33 characters, since configurations are named after it."""

    instance_type: InstanceType = "ml.m5.large"
    """Type of the instances."""

    instance_count: int = Field(default=2, ge=1)
    """Number of instances."""

    shift: Literal["canary", "linear", "all_at_once"] = "canary"
    """How requests come to a new model: a share first, then all; in equal steps; or all at once."""

    share: float = Field(default=0.5, ge=0.1, le=0.5)
    """Share of the capacity that a canary, or each linear step, has."""

    bake_minutes: float = Field(default=10, gt=0, le=60)
    """Minutes after each shift in which an alarm rolls back."""

    max_error_share: float | None = Field(default=0.05, gt=0, lt=1)
    """Share of requests of a minute that end with a server error (5XX), beyond which an alarm goes
    off; null for none."""

    max_p95_ms: float | None = Field(default=None, gt=0)
    """95th percentile of the model's latency in a minute, beyond which in two minutes in a row an
    alarm goes off: a process's first request is slow, whatever the model."""

    compare: Comparison | None = None
    """Sequential comparison with the serving model."""

    capture_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the requests that are captured, with their answers, below the pipeline's prefix."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        canary = math.ceil(self.share * self.instance_count)
        if self.shift != "all_at_once" and canary > self.instance_count / 2:
            raise ValueError(
                f"share: {self.share:g} of {self.instance_count} instances is {canary}, more than "
                "half; take more instances, or shift: all_at_once"
            )
        if self.max_p95_ms and self.bake_minutes < LATENCY_MINUTES:
            raise ValueError(
                f"bake_minutes: {self.bake_minutes:g} is too short for max_p95_ms, whose alarm "
                f"looks at two minutes in a row; take {LATENCY_MINUTES} or more"
            )
        if self.compare and self.compare.quality and not self.capture_share:
            raise ValueError("compare.quality: is read from captured answers; set capture_share")
        if self.compare and self.shift == "all_at_once":
            raise ValueError("compare: needs both models to answer; set shift to canary or linear")
        return self


# The recipe's section ``monitor``: what the endpoint's captured requests are compared with.


class Monitor(Section):
    """Drift of an endpoint's requests and answers, by feature; quality once truths are there."""

    days: int = Field(default=7, ge=1)
    """Days that are looked at."""

    baseline: S3Uri | None = None
    """S3 object or prefix of the records to compare with (CSV, JSON Lines or Parquet), or of the
    scores of a transform step; default: what the endpoint was asked before these days."""

    baseline_days: int = Field(default=28, ge=1)
    """Days before these whose captured requests are the default baseline."""

    features: tuple[str, ...] = ()
    """Columns that are compared; default: the tabular workload's categories and numbers, with other
    models every column of the baseline."""

    prediction: str | None = Field(default=None, pattern=r"^\w+(\.\w+)*$", examples=["probability"])
    """Number in the model's JSON answer that is compared, too, as probability; a dot leads into an
    object. Default: none."""

    truths: S3Uri | None = None
    """S3 prefix of ground truths, in Model Monitor's format: what ``prediction`` should have been
    (for a probability 0 or 1). The answers' metric is compared with the evaluation's."""

    metric: str | None = None
    """Metric of the truths: log_loss, brier, accuracy, mae or mse, if the model's evaluation has
    it; default: the workload's first. The gate's ``non_inferiority`` margin is allowed for."""

    error: float = Field(default=0.05, gt=0, lt=0.5)
    """Probability that anything is called drift in a period without any."""

    least_psi: float = Field(default=0.1, ge=0)
    """Population stability index below which a difference is not drift, however certain."""

    retrain: bool = False
    """Whether ``pipelines.monitor --start`` may start the pipeline, within its budget."""

    topic: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:\S+$",
        examples=["arn:aws:sns:us-east-1:111122223333:drift"],
    )
    """ARN of the SNS topic that is told of drift."""


def refuse_monitor(monitor: Monitor | None, deploy: Deploy | None) -> str | None:
    """Return why there is nothing to monitor; None if there is."""
    if monitor is None:
        return None
    if deploy is None or not deploy.capture_share:
        return "monitor: reads captured requests; set deploy.endpoint and deploy.capture_share"
    if monitor.truths and not monitor.prediction:
        return "monitor.truths: are compared with a number in the answer; name it in prediction"
    if monitor.metric and not monitor.truths:
        return "monitor.metric: is computed from ground truths; name their prefix in monitor.truths"
    return None


# The recipe's section ``packages``: where jobs get the packages that their images lack.

CODEARTIFACT = (
    r"^arn:aws[a-z-]*:codeartifact:[a-z0-9-]+:\d{12}:repository/"
    r"[a-z][a-z0-9-]{0,48}[a-z0-9]/[A-Za-z0-9][A-Za-z0-9._-]{1,99}$"
)
"""Pattern of a repository's ARN (API reference, DomainName and RepositoryName)."""
INDEX = r"^https://[^\s@/]+(/[^\s@?#]*)?$"
PythonVersion = Annotated[str, Field(pattern=r"^3\.\d+$", examples=["3.12"])]


class Packages(Section):
    """Where jobs get the Python packages that their images lack; default: pip's own index."""

    index: str | None = None
    """URL of an index (PEP 503) that every job asks instead, as https://pypi.example.com/simple; it
    must admit the jobs without a password."""

    codeartifact: str | None = Field(
        default=None,
        pattern=CODEARTIFACT,
        exclude_if=lambda arn: arn is None,
        examples=["arn:aws:codeartifact:us-east-1:111122223333:repository/my-domain/pypi"],
    )
    """ARN of a CodeArtifact repository that every job asks instead, with a token that its role gets
    it as it starts. Needs the AWS CLI or boto3 in the image."""

    wheelhouse: bool = False
    """Jobs ask no index: ``python -m pipelines.package`` downloads the wheels and uploads them, and
    each job gets its own as a channel. They need no way out of their network."""

    python: tuple[PythonVersion, ...] = ()
    """Python versions that wheels are downloaded for, as "3.12"; default: that of AWS's image. An
    image of your own, and the emulator, may have another."""

    @field_validator("index")
    @classmethod
    def _no_credentials(cls, index: str | None) -> str | None:
        """Refuse an index whose address is not plain https; a password in it is not shown."""
        if index is not None and not re.match(INDEX, index):
            display_index = re.sub(r"//[^/]*@", "//…@", index)
            raise ValueError(
                f"is {display_index!r}; expected https://HOST/PATH without user, password, query "
                "or fragment: everyone who may describe a job reads its environment"
            )
        return index

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.wheelhouse and (self.index or self.codeartifact):
            source_field = "index" if self.index else "codeartifact"
            raise ValueError(
                f"{source_field}: jobs with a wheelhouse ask no index; remove one of them"
            )
        if self.index and self.codeartifact:
            raise ValueError("index: codeartifact is one, too; remove one of them")
        if self.python and not self.wheelhouse:
            raise ValueError("python: is used with wheelhouse: true only; remove it, or set that")
        return self

    def environment(self, wheels: str) -> Mapping[str, str]:
        """Return pip's settings in a job whose wheels lie in the folder ``wheels``."""
        if self.wheelhouse:
            return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels}
        if self.codeartifact:  # read by AWS's training drivers and steps/container.sh
            return {"CA_REPOSITORY_ARN": self.codeartifact}
        return {"PIP_INDEX_URL": self.index} if self.index else {}


# The recipe's section ``promotion``: from which account packages come to this one.


class Promotion(Section):
    """Where ``python -m pipelines.promote`` gets packages from, and whose approval counts there."""

    source: str
    """Environment of this recipe whose Approved packages are promoted here."""

    reader: RoleArn
    """ARN of the role of that environment's account that may read its registry and executions. This
    account's promoter assumes it; ``pipelines.promote --policies`` prints its policies."""

    approvers: tuple[str, ...] = ()
    """ARNs of the roles whose approval there counts; default: every role of that account."""
