"""The recipe: every field of ``recipes/*.yaml``, with its type, unit and default.

Nothing here reads files or calls AWS: ``pipelines.recipe.read_recipe`` reads recipes,
``pipelines.definition`` builds definitions. Docstrings of sections and fields become descriptions
in recipes/schema.json.
"""

from typing import Any, Self

from pydantic import BaseModel, Field, model_validator

from pipelines.recipe import script_section
from pipelines.recipe.sections import (
    Aws,
    Budget,
    Data,
    Deploy,
    Monitor,
    Packages,
    Promotion,
    explain_other_account,
    explain_unfit_monitor,
)
from steps.config import S3Uri, Section
from steps.evaluate.config import EvaluateConfig
from steps.gate.config import GateConfig, name_threshold_parameter
from steps.register.config import RegisterConfig
from steps.shard.config import ShardConfig
from steps.shard.settings import ShardSettings
from steps.train.config import TrainStepConfig, explain_missing_library
from steps.transform.config import TransformConfig
from steps.tune.config import TuneConfig
from training.config import TrainConfig
from training.strategy_table import explain_unfit_torch
from training.weights.starting_weights import BASE_MODEL
from training.workloads import WorkloadSpec, load_spec
from trainyard.common.errors import suggest_nearest
from trainyard.instance_types import MACHINES
from trainyard.language.retries import LIMITS, Cause
from trainyard.validate.rules.images import parse_torch_version

OVERRIDABLE = (
    *("InputUri", "MaxSteps"),
    *("ShardInstanceCount", "TrainInstanceType", "TrainInstanceCount", "TransformInputUri"),
)
"""Pipeline parameters of a recipe that lists none; also all that it may list besides thresholds."""


class PipelineConfig(Section):
    """Settings of the SageMaker pipeline itself."""

    name: str = Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,255}$", examples=["my-pipeline"])
    """Name of the pipeline; upserting a recipe with the same name updates it."""

    description: str = Field(default="", max_length=3072)
    """Shown in the Studio pipeline UI."""

    max_parallel_steps: int = Field(default=4, ge=1, le=50)
    """Steps that may run at the same time in one execution."""

    overridable: tuple[str, ...] = OVERRIDABLE
    """Pipeline parameters that may be changed when an execution is started; everything else is
    constant until the next upsert. Thresholds can be added: GateMaxBitsPerByte for
    ``gate.max_bits_per_byte``. The model of an execution with a changed parameter is approved only
    if a reason is given.
    """


class Images(Section):
    """Container images; the default of each URI is AWS's PyTorch image of the given version."""

    pytorch_version: str = Field(default="2.10.0", pattern=r"^\d+\.\d+(\.\d+)?$")
    """Version of AWS's PyTorch training image; the default is the newest that the SDK knows."""

    python_version: str | None = Field(default=None, pattern=r"^py3\d+$", examples=["py312"])
    """Python version of that image, such as py312; None for the one with which AWS builds it."""

    inference_version: str = Field(default="2.6.0", pattern=r"^\d+\.\d+(\.\d+)?$")
    """Version of AWS's PyTorch inference image; the default is the newest that the SDK knows."""

    inference_python_version: str | None = Field(
        default=None, pattern=r"^py3\d+$", examples=["py312"]
    )
    """Python version of the inference image; None for the one with which AWS builds it."""

    registry: str | None = Field(
        default=None,
        pattern=r"^\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?(/[a-z0-9._-]+)*$",
        exclude_if=lambda registry: registry is None,
        examples=["111122223333.dkr.ecr.us-east-1.amazonaws.com/mirror"],
    )
    """Registry that has AWS's images under their own names and tags, if necessary with a path
    before the name: 111122223333.dkr.ecr.us-east-1.amazonaws.com/mirror; default: AWS's.
    """

    training: str | None = None
    """Image URI of the train step."""

    processing: str | None = None
    """Image URI of the shard, evaluate and gate steps; default: AWS's PyTorch training image."""

    inference: str | None = None
    """Image URI in the model package's inference specification."""


class Workload(Section):
    """Workload that is trained: how records become samples, the model, its metrics."""

    name: str = "language_model"
    """A workload that ships with Trainyard, or ``package.module`` of your own."""

    config: dict[str, Any] = Field(default_factory=dict)
    """The workload's own settings, checked by its own typed configuration."""

    tokenizer: S3Uri | None = None
    """S3 prefix of a Hugging Face ``tokenizer.json``, for workloads that use a tokenizer."""

    source: str | None = None
    """Folder with your own workload's package, relative to the recipe; sent with the code."""


class Inference(Section):
    """Serving of requests with a model that your own script trained."""

    script: str | None = None
    """A script of your own (.py), relative to the recipe, with model_fn, input_fn, predict_fn and
    output_fn, as AWS's inference toolkits expect. It is put into the model's archive as
    code/inference.py, with the other files of its folder. It must be in the folder that is sent to
    the training.
    """


class Cache(Section):
    """SageMaker's step cache."""

    enabled: bool = True
    """Reuse the result of an earlier step with the same arguments."""

    expire_after: str = Field(default="P30D", pattern=r"^P(\d+D|(\d+D)?T\d+[HM])$")
    """Maximum age of a reused result, as an ISO 8601 duration (P30D, PT12H)."""


class Retry(Section):
    """The failures of a job step after which the service retries it, and how often."""

    max_attempts: int = Field(default=0, ge=0, le=LIMITS["MaxAttempts"][1])
    """Maximum attempts; 0 for no retries."""

    interval_seconds: int = Field(default=60, ge=1, le=LIMITS["IntervalSeconds"][1])
    """Seconds before the first retry."""

    backoff_rate: float = Field(default=2.0, ge=1)
    """Factor by which the wait grows from one retry to the next."""

    causes: tuple[Cause, ...] = (*("service_fault", "throttling", "capacity", "internal_error"),)
    """Causes of a failure after which a step is retried; an error in the code is never retried."""


class Recipe(Section):
    """One complete configuration: a recipe file, read and checked."""

    pipeline: PipelineConfig
    """The pipeline's name and description."""

    aws: Aws = Aws()
    """Region, role, bucket, network, encryption, tags."""

    images: Images = Images()
    """Container images."""

    packages: Packages = Field(default=Packages(), exclude_if=lambda value: value == Packages())
    """Where jobs get the packages that are missing from their images."""

    data: Data | None = None
    """Raw data, from which the shard step creates the splits, or shards that exist already. Without
    raw data there is no shard step. A script of your own can do without this section.
    """

    workload: Workload = Workload()
    """Workload that is trained."""

    shard: ShardConfig = ShardConfig()
    """The shard step."""

    train: TrainStepConfig = Field(
        examples=[
            {
                "instance_type": "ml.g5.xlarge",
                "loop": {
                    "max_steps": 1000,
                    "global_batch": 16,
                    "micro_batch": 4,
                    "learning_rate": 0.001,
                },
            }
        ]
    )
    """The train step."""

    tune: TuneConfig | None = Field(default=None, exclude_if=lambda value: value is None)
    """Search for better hyperparameters before the train step; None for no search."""

    evaluate: EvaluateConfig = EvaluateConfig()
    """The evaluate step."""

    inference: Inference = Inference()
    """Serving of requests with a script's model."""

    gate: GateConfig = Field(examples=[{"max_leaked_examples": 0}])
    """The gate step and its thresholds."""

    register_: RegisterConfig = Field(alias="register")
    """The register step."""

    transform: TransformConfig | None = Field(default=None, exclude_if=lambda value: value is None)
    """Batch scoring by the registered model; None for no such step."""

    cache: Cache = Cache()
    """The step cache."""

    retry: Retry = Retry()
    """Retries of job steps."""

    budget: Budget = Budget()
    """Limit on the cost of an execution."""

    deploy: Deploy | None = Field(default=None, exclude_if=lambda value: value is None)
    """The endpoint that serves the model."""

    monitor: Monitor | None = Field(default=None, exclude_if=lambda value: value is None)
    """Monitoring of the endpoint's requests and responses for drift."""

    promotion: Promotion | None = Field(default=None, exclude_if=lambda value: value is None)
    """The environment from which packages are promoted to this one."""

    @property
    def kind(self) -> str:
        """Return the workload's name, or ``script`` for the user's own script."""
        return script_section.NAME if self.train.script else self.workload.name

    @property
    def reads_raw_data(self) -> bool:
        """Return whether there is a shard step."""
        return self.data is not None and self.data.shards is None

    @property
    def workload_spec(self) -> WorkloadSpec:
        """Return the workload's description for train, evaluate and gate, such as its metrics."""
        return (
            self.samples_spec
            if self.train.loop
            else script_section.build_evaluation_spec(self.evaluate)
        )

    @property
    def samples_spec(self) -> WorkloadSpec:
        """Return the description of the workload for which the shard step packs."""
        return load_spec(self.workload.name)

    @property
    def workload_config(self) -> BaseModel:
        """Return the workload's settings, typed and with their defaults."""
        return self.samples_spec.config(**self.workload.config)

    @property
    def slices(self) -> tuple[str, ...]:
        """Return the evaluation's slices; with several inputs of our loop, also a row's input."""
        slice_names = self.evaluate.slices
        if self.train.loop is None or not (self.data and self.data.inputs):
            return slice_names
        by_input = self.samples_spec.get_input_slice(self.workload_config)
        return (
            slice_names if by_input is None or by_input in slice_names else (*slice_names, by_input)
        )

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the parameters in OVERRIDABLE that apply to this recipe."""
        inapplicable = set() if self.train.loop else {"MaxSteps"}
        inapplicable |= set() if self.reads_raw_data else {"InputUri"}
        several = self.reads_raw_data and self.shard.instance_count > 1  # one instance uses no Ray
        inapplicable |= set() if several else {"ShardInstanceCount"}
        inapplicable |= {"InputUri"} if self.data and self.data.inputs else set()
        inapplicable |= set() if self.transform else {"TransformInputUri"}
        return tuple(name for name in OVERRIDABLE if name not in inapplicable)

    @model_validator(mode="after")
    def _check_sections_of_program(self) -> Self:
        """Check that the sections fit the training program: the loop or a script."""
        presence = self.data is not None, self.transform is not None
        script_section.check_script_fields(
            self.train, self.evaluate, self.inference.script, *presence
        )
        if self.train.loop is None:
            script_section.check_gate(self.gate, self.evaluate, self.inference.script)
        return self

    @model_validator(mode="after")
    def _check_given_shards(self) -> Self:
        """Check that no setting of the shard step is given if the shards exist already."""
        if self.data is None or self.data.shards is None:
            return self
        if shard_fields := sorted(self.shard.model_fields_set & ShardSettings.model_fields.keys()):
            raise ValueError(
                f"shard.{shard_fields[0]}: applies only to raw data, but data.shards names "
                "existing shards; remove it, or set data.input"
            )
        if self.train.fsx:
            raise ValueError(
                "train.fsx: mirrors the output of the shard step, and with data.shards there is no "
                "such step; set train.input_mode to FastFile, or let a script mount the shards "
                "with train.file_systems"
            )
        return self

    @model_validator(mode="after")
    def _check_compared_answers(self) -> Self:
        """Check that the workload's responses have the numbers that are compared."""
        answer_numbers = self.workload_spec.answer_numbers
        compare = self.deploy.compare if self.deploy else None
        for field, path in (
            ("deploy.compare.quality", compare.quality if compare else None),
            ("monitor.prediction", self.monitor.prediction if self.monitor else None),
        ):
            if answer_numbers and path and path not in answer_numbers:
                raise ValueError(
                    f"{field}: {path!r} is not a number in the answers of workload {self.kind}; "
                    f"{suggest_nearest(path, [*answer_numbers])}"
                )
        return self

    @model_validator(mode="after")
    def _check_starting_weights(self) -> Self:
        """Check that the inputs have weights if, and only if, the loop trains."""
        if self.data is None or not self.data.inputs:
            return self
        if self.train.loop is None and (self.data.mixture or self.data.weight_changes):
            raise ValueError(
                "data.inputs: have weights, but train.script reads the shards by itself; remove "
                "the weights, or train with train.loop"
            )
        if self.train.loop and not self.data.mixture:
            raise ValueError("data.inputs.0.weight: is missing; give each of the inputs a weight")
        return self

    @model_validator(mode="after")
    def _check_gate(self) -> Self:
        """Check that the gate's metrics and baseline exist, and that it has a check."""
        workload_spec = self.workload_spec
        if not workload_spec.metrics:  # a script without metrics: script_section.check refuses it
            return self
        valid = [
            f"{bound}_{metric}" for metric in workload_spec.metrics for bound in ("max", "min")
        ]
        fields = [*GateConfig.model_fields, *valid]
        for threshold in self.gate.thresholds:
            if threshold not in valid:
                raise ValueError(
                    f"gate.{threshold}: unknown field; {suggest_nearest(threshold, fields)}"
                )
        baseline = self.gate.below_baseline
        if baseline == BASE_MODEL and not self.begins_with_model:
            raise ValueError(
                f"gate.below_baseline: {BASE_MODEL} is the model from which the training starts: "
                "set train.start_from to a model_package, model or hugging_face folder"
            )
        baselines = [*workload_spec.baselines, *([BASE_MODEL] if self.begins_with_model else [])]
        if baseline is not None and baseline not in baselines:
            raise ValueError(
                f"gate.below_baseline: {baseline!r} is not a baseline of workload "
                f"{self.kind}; {suggest_nearest(baseline, baselines)}"
            )
        self._check_comparisons(workload_spec)
        if not self.gate.kinds:
            raise ValueError(
                "gate: nothing to check; set a threshold such as "
                f"max_{workload_spec.primary_metric}, or below_baseline"
            )
        return self

    @property
    def begins_with_model(self) -> bool:
        """Return whether the training starts from a model; that model is then also a baseline."""
        return self.train.start_from is not None and self.train.start_from.checkpoint is None

    @model_validator(mode="after")
    def _check_overridable_fields(self) -> Self:
        """Check that the listed overridable parameters exist."""
        parameter_names = [*self.parameters, *map(name_threshold_parameter, self.gate.thresholds)]
        has_own_overridable = self.pipeline.overridable != OVERRIDABLE
        for name in self.pipeline.overridable if has_own_overridable else ():
            if name not in parameter_names:
                raise ValueError(
                    f"pipeline.overridable: {name!r} is not a parameter that a run may change; "
                    f"{suggest_nearest(name, parameter_names)}"
                )
        return self

    def _check_comparisons(self, workload_spec: WorkloadSpec) -> None:
        """Check that each comparison uses a comparable metric of the workload.

        If the first model passes the comparisons by default, also check that the gate has other
        checks.

        Raises:
            ValueError: names the field.
        """
        for kind, margins in self.gate.comparisons.items():
            for metric in margins:
                self._check_comparable(kind, metric, workload_spec)
        for refusal in self.gate.value_errors:
            raise ValueError(refusal)
        if (
            self.gate.comparisons
            and self.gate.cold_start == "pass"
            and not self.gate.has_absolute_check
        ):
            raise ValueError(
                "gate.cold_start: is 'pass', so nothing would check the first model before "
                f"registration; add an absolute check such as max_{workload_spec.primary_metric}, "
                "or set it to 'reject'"
            )

    def _check_comparable(self, kind: str, metric: str, workload_spec: WorkloadSpec) -> None:
        """Raise ValueError if the metric cannot be compared between two models."""
        comparable = (
            workload_spec.metrics
            if workload_spec.compared_in is None
            else workload_spec.compared_in
        )
        if metric in comparable:
            return
        field = f"gate.{kind}.{metric}"
        if metric in workload_spec.metrics:
            raise ValueError(
                f"{field}: is not a sum over examples, so it cannot compare two models; choose "
                f"one of {', '.join(comparable)}, or bound it by max_{metric} or min_{metric}"
            )
        raise ValueError(
            f"{field}: is not a metric of workload {self.kind}; "
            f"{suggest_nearest(metric, list(comparable))}"
        )

    @model_validator(mode="after")
    def _check_image_and_machines(self) -> Self:
        """Check that image, batch and fallback types are compatible with the machines."""
        train, version, image = self.train, self.images.pytorch_version, self.images.training
        if train.loop is not None and (refusal := explain_unfit_images(train.loop, version, image)):
            raise ValueError(refusal)
        if refusal := explain_unfit_batch(train):
            raise ValueError(f"train.loop: {refusal}")
        parameter = "TrainInstanceType" in self.pipeline.overridable
        refusal = explain_unfit_fallbacks(
            train, is_encrypted=bool(self.aws.kms_key), parameter=parameter
        )
        if refusal:
            raise ValueError(f"train.fallback_instance_types: {refusal}")
        return self

    @model_validator(mode="after")
    def _check_account(self) -> Self:
        """Check that the roles are in one account, and the group is in the recipe's region."""
        aws, region = self.aws, self.register_.group_region
        if refusal := explain_other_account(
            aws.account, {"role": aws.role, "job_role": aws.job_role}
        ):
            raise ValueError(refusal)
        if region and aws.region and region != aws.region:
            raise ValueError(
                f"register.model_package_group: is in region {region}; expected one in "
                f"{aws.region}, as aws.region says: a package is registered in its run's region"
            )
        return self

    @model_validator(mode="after")
    def _check_wheelhouse_channel(self) -> Self:
        """Check that no channel has the same name as the wheelhouse's channel."""
        for section, sources in (
            ("train", self.train.sources),
            ("evaluate", self.evaluate.channels),
        ):
            if self.packages.wheelhouse and "wheels" in sources:
                raise ValueError(
                    f"{section}.channels.wheels: packages.wheelhouse has a channel of that name; "
                    "choose another"
                )
        return self

    @model_validator(mode="after")
    def _check_required_sections(self) -> Self:
        """Check that file systems have a VPC, and that the monitor has an endpoint."""
        for field in self.train.mounted_fields if not self.aws.vpc else ():
            raise ValueError(f"train.{field}: a file system is mounted through a VPC; set aws.vpc")
        if refusal := explain_unfit_monitor(self.monitor, self.deploy):
            raise ValueError(refusal)
        return self


# Names that other frameworks use for a recipe's fields; an error about one of them names our field.

_OTHERS = {
    # train.loop: PyTorch, Hugging Face's TrainingArguments, Lightning's Trainer, nanoGPT, Megatron
    "global_batch": "batch_size train_batch_size total_batch_size global_batch_size batch",
    "micro_batch": "per_device_train_batch_size micro_batch_size per_device_batch_size mbs "
    "per_gpu_train_batch_size train_micro_batch_size_per_gpu device_batch_size "
    "gradient_accumulation_steps accumulate_grad_batches grad_accum grad_accum_steps",
    "max_steps": "epochs num_epochs max_epochs num_train_epochs n_epochs steps num_steps max_iters "
    "total_steps max_train_steps train_steps train_iters iterations num_iterations",
    "learning_rate": "lr peak_lr max_lr base_lr learning_rate_init step_size",
    "warmup_steps": "warmup warmup_ratio num_warmup_steps lr_warmup_steps warmup_iters lr_warmup",
    "weight_decay": "wd decay l2 weight_decay_rate",
    "schedule": "lr_scheduler lr_scheduler_type scheduler lr_schedule",
    "min_learning_rate_ratio": "min_lr eta_min min_lr_ratio",
    "decay_share": "decay_steps decay_ratio lr_decay_iters",
    "grad_clip": "max_grad_norm gradient_clip_val clip_grad clip_grad_norm gradient_clipping",
    "beta1": "adam_beta1 betas",
    "beta2": "adam_beta2",
    "optimizer": "optim",
    "ema_decay": "ema",
    "precision": "fp16 bf16 dtype amp mixed_precision torch_dtype",
    "seed": "random_seed random_state data_seed",
    "validation_interval": "eval_steps eval_interval val_check_interval eval_every",
    "validation_samples": "eval_samples eval_iters max_eval_samples limit_val_batches",
    "checkpoint_interval": "save_steps save_interval checkpoint_every save_every",
    "keep_checkpoints": "save_total_limit save_top_k",
    "log_interval": "logging_steps log_every_n_steps log_every logging_interval",
    "loader_threads": "num_workers dataloader_num_workers",
    "activation_checkpointing": "gradient_checkpointing recompute",
    "compile": "torch_compile",
    "strategy": "distribution backend parallelism",
    "tensor_parallel": "tp tensor_parallel_size tensor_model_parallel_size",
    "pipeline_parallel": "pp pipeline_parallel_size pipeline_model_parallel_size",
    "context_parallel": "cp context_parallel_size",
    "zero_stage": "zero_optimization",
    # train: SageMaker's SDK, torchrun, Lightning
    "instance_count": "num_nodes nnodes nodes instances num_machines",
    "processes_per_node": "nproc_per_node devices gpus gpus_per_node num_processes processes",
    "volume_gb": "volume_size volume_size_in_gb disk_gb",
    "max_runtime_minutes": "max_run max_runtime max_runtime_in_seconds timeout",
    "max_wait_minutes": "max_wait",
    "spot": "use_spot_instances use_spot",
    "keep_alive_minutes": "keep_alive_period_in_seconds keep_alive",
    "arguments": "hyperparameters hyper_parameters args",
    "script": "entry_point entrypoint entry_script",
    "source": "source_dir code",
    "environment": "env",
    # aws, register
    "role": "role_arn execution_role iam_role",
    "kms_key": "kms_key_id kms output_kms_key",
    "bucket": "s3_bucket default_bucket",
    "model_package_group": "model_package_group_name group",
    "approval": "model_approval_status",
    # workload.config of a language model: Hugging Face's configurations, nanoGPT
    "context_length": "seq_len seq_length sequence_length max_seq_length block_size n_ctx "
    "max_position_embeddings context_size",
    "layers": "n_layers num_layers num_hidden_layers n_layer depth",
    "heads": "n_heads num_heads num_attention_heads n_head",
    "kv_heads": "n_kv_heads num_key_value_heads",
    "dim": "hidden_size d_model n_embd embed_dim model_dim",
    "hidden_dim": "intermediate_size ffn_dim d_ff",
}
NAMES = {name: field for field, names in _OTHERS.items() for name in names.split()}
"""Mapping of each name in another framework to the recipe's field."""

_EPOCHS = ": it counts optimizer steps, epochs × samples / global_batch"
_ACCUMULATION_NOTE = (
    ": steps accumulate automatically, global_batch / (micro_batch × data-parallel ranks)"
)
_RATIO_NOTE = ": it counts optimizer steps, the ratio × max_steps"
REMARKS = {
    **{name: _EPOCHS for name in _OTHERS["max_steps"].split() if "epoch" in name},
    **{name: _ACCUMULATION_NOTE for name in _OTHERS["micro_batch"].split() if "accum" in name},
    **{name: _RATIO_NOTE for name in ("warmup_ratio",)},
}
"""How our field differs, by the name in another framework, if its value has another meaning."""


# Check that the batch, the fallback types and the image suit the machines of a training.


def explain_unfit_batch(train: TrainStepConfig) -> str | None:
    """Return why the batch cannot be shared evenly among the ranks; None if it can.

    It is only checked if the instance type gives the number of ranks, one per accelerator.
    """
    if not train.loop or train.processes_per_node:
        return None
    for name in (train.instance_type, *train.fallback_instance_types):
        machine = MACHINES.get(name)
        if machine is None or not machine.accelerators:
            continue
        try:
            train.loop.count_micro_batches(train.instance_count * machine.accelerators)
        except ValueError as error:
            return f"on {train.instance_count} × {name}: {error}"
    return None


def explain_unfit_type(name: str) -> str | None:
    """Return a message with the nearest instance type; None if ``name`` is an instance type."""
    if name in MACHINES:
        return None
    return f"no such instance type for training or processing; {suggest_nearest(name, [*MACHINES])}"


def explain_unfit_images(
    loop: TrainConfig, pytorch_version: str, own_image: str | None
) -> str | None:
    """Return why the training image does not have what the loop needs.

    Return None if it has it, or if it is the user's own image (``own_image``) of unknown version,
    which only the job can check.
    """
    if refusal := explain_missing_library(loop.strategy, pytorch_version, own_image):
        return refusal
    version = parse_torch_version(own_image) if own_image else pytorch_version
    refusal = explain_unfit_torch(loop, version) if version else None
    prefix = (
        f"training: is {own_image!r}" if own_image else f"pytorch_version: is {pytorch_version!r}"
    )
    return f"images.{prefix}; {refusal}" if refusal else None


def explain_unfit_fallbacks(
    train: TrainStepConfig, *, is_encrypted: bool, parameter: bool
) -> str | None:
    """Return why an execution could not continue on one of the fallback instance types; None if it
    can continue on all of them.

    Args:
        is_encrypted: whether volumes are encrypted with the recipe's key.
        parameter: whether an execution may change the instance type at all.
    """
    if train.fallback_instance_types and not parameter:
        return (
            "a run on another type changes the parameter TrainInstanceType: list this parameter in "
            "pipeline.overridable"
        )
    # The definition is compiled once, for the first type, so it must also fit the other types.
    refusals = (
        _explain_lost_resume(train, name, is_encrypted) for name in train.fallback_instance_types
    )
    return next((refusal for refusal in refusals if refusal), None)


def _explain_lost_resume(train: TrainStepConfig, name: str, is_encrypted: bool) -> str | None:
    """Return why an execution could not continue on the type ``name``; None if it can."""
    machine, default_machine = MACHINES.get(name), MACHINES.get(train.instance_type)
    if machine is None:
        return f"{name}: {explain_unfit_type(name)}"
    if 0 < machine.accelerators < train.processes_per_node:
        return (
            f"{name} has {machine.accelerators} accelerators, and train.processes_per_node is "
            f"{train.processes_per_node}"
        )
    if default_machine is None:
        return None
    if machine.kind != default_machine.kind:
        return (
            f"{name} needs an image for {machine.kind} and {default_machine.name} one for "
            f"{default_machine.kind}, but "
            "the definition has only one image"
        )
    if is_encrypted and bool(default_machine.local_storage_gb) != bool(machine.local_storage_gb):
        return (
            f"one of {name} and {default_machine.name} has local disks, which must not have a "
            "key, and the "
            "other needs aws.kms_key for its volume; choose a type with the same disks"
        )
    return None
