"""Tables of how calls of SDK v2 are written in SDK v3: the place of each argument, or the reason
why it is left out.

A place is a path: ``compute:Compute.instance_type`` is the argument ``instance_type`` of a
``Compute`` that is passed as the argument ``compute``. An argument without a place keeps its name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

GONE = "SDK v3 has no such argument"
NOT_ASKED = "no request of a pipeline contains it"
SESSION = "sagemaker_session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a call of v2 is rewritten."""

    name: str
    """Name of the class or method of v3."""
    order: Sequence[str]
    """Names of v2's positional arguments, in their order."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Mapping of an argument of v2 to its place in v3. Other arguments in ``order`` and ``same``
    keep their names."""
    same: Sequence[str] = ()
    """Names of further arguments that are the same in v3."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Mapping of an argument that does not exist in v3 to the reason why pipelines do not need
    it."""
    spent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Mapping of an argument that does not exist in v3 to those of its values that v3 implies
    anyway."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Mapping of a place in v3 to the code of v2's default, if v3 has another default."""


def _prefix_places(prefix: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return the mapping ``names`` with ``prefix`` and a dot before each place."""
    return {name: f"{prefix}.{path}" for name, path in names.items()}


_JOB = "role instance_count instance_type"
_PROCESSOR = (
    "volume_size_in_gb volume_kms_key output_kms_key max_runtime_in_seconds base_job_name "
    "sagemaker_session env tags network_config"
)
_RUN = "inputs outputs arguments wait logs job_name experiment_config kms_key"
_WAIT = {"wait": NOT_ASKED, "logs": NOT_ASKED, "job_name": NOT_ASKED}

ESTIMATOR = {
    "image_uri": "training_image",
    "input_mode": "training_input_mode",
    **_prefix_places(
        "compute:Compute",
        {
            "instance_count": "instance_count",
            "instance_type": "instance_type",
            "volume_size": "volume_size_in_gb",
            "volume_kms_key": "volume_kms_key_id",
            "keep_alive_period_in_seconds": "keep_alive_period_in_seconds",
            "use_spot_instances": "enable_managed_spot_training",
        },
    ),
    **_prefix_places(
        "stopping_condition:StoppingCondition",
        {"max_run": "max_runtime_in_seconds", "max_wait": "max_wait_time_in_seconds"},
    ),
    **_prefix_places(
        "output_data_config:OutputDataConfig",
        {"output_path": "s3_output_path", "output_kms_key": "kms_key_id"},
    ),
    **_prefix_places(
        "networking:Networking",
        {
            "subnets": "subnets",
            "security_group_ids": "security_group_ids",
            "encrypt_inter_container_traffic": "enable_inter_container_traffic_encryption",
            "enable_network_isolation": "enable_network_isolation",
        },
    ),
    **_prefix_places(
        "checkpoint_config:CheckpointConfig",
        {"checkpoint_s3_uri": "s3_uri", "checkpoint_local_path": "local_path"},
    ),
    **_prefix_places(
        "source_code:SourceCode", {"entry_point": "entry_script", "source_dir": "source_dir"}
    ),
}
_ESTIMATOR_SAME = ("role sagemaker_session hyperparameters base_job_name environment").split()
_UNWATCHED_OPTIONS = {
    "disable_profiler": ("True",),
    "debugger_hook_config": ("False",),
    "enable_sagemaker_metrics": ("False", "None"),
    "model_uri": ("None",),
}
_TRAINING_DEFAULTS = {"stopping_condition:StoppingCondition.max_runtime_in_seconds": "86400"}

PROCESSING_INPUT = _prefix_places("s3_input:ProcessingS3Input", {
    "source": "s3_uri",
    "destination": "local_path",
    "s3_data_type": "s3_data_type",
    "s3_input_mode": "s3_input_mode",
    "s3_data_distribution_type": "s3_data_distribution_type",
    "s3_compression_type": "s3_compression_type",
})  # fmt: skip
_INPUT_DEFAULTS = {"s3_data_type": '"S3Prefix"', "s3_input_mode": '"File"'}
PROCESSING_OUTPUT = _prefix_places("s3_output:ProcessingS3Output", {
    "source": "local_path", "destination": "s3_uri", "s3_upload_mode": "s3_upload_mode",
})  # fmt: skip
CHANNEL = {
    "record_wrapping": "record_wrapper_type",
    "compression": "compression_type",
    **_prefix_places("data_source:DataSource.s3_data_source:S3DataSource", {
        "s3_data": "s3_uri",
        "distribution": "s3_data_distribution_type",
        "s3_data_type": "s3_data_type",
        "instance_groups": "instance_group_names",
        "attribute_names": "attribute_names",
    }),
}  # fmt: skip
_TRAINING_INPUT = (
    "s3_data distribution compression content_type record_wrapping s3_data_type instance_groups "
    "input_mode attribute_names target_attribute_name shuffle_config"
).split()
INPUT_DATA = Rule(
    name="InputData", order=_TRAINING_INPUT, paths={"s3_data": "data_source"}, same=()
)
"""Rule for the short form of a channel in v3, which has only the arguments ``INPUT_DATA_HOLDS``."""
INPUT_DATA_HOLDS = {"s3_data", "content_type"}

_REGISTER = (
    "content_types response_types inference_instances transform_instances "
    "model_package_group_name model_metrics metadata_properties approval_status description "
    "drift_check_baselines customer_metadata_properties domain sample_payload_url task "
    "nearest_model_name data_input_configuration skip_model_validation source_uri model_card "
    "model_life_cycle model_package_name accept_eula validation_specification marketplace_cert"
).split()

NO_SCRIPT = {"dependencies": "{}"}
"""Argument without which ModelBuilder.register() would tell the container to run a script that does
not exist."""

CLASSES = {
    "ProcessingInput": Rule(
        name="ProcessingInput",
        order="source destination input_name s3_data_type s3_input_mode s3_data_distribution_type "
        "s3_compression_type".split(),
        paths=PROCESSING_INPUT,
        same=("s3_input", "dataset_definition", "app_managed"),
        defaults={f"s3_input:ProcessingS3Input.{k}": v for k, v in _INPUT_DEFAULTS.items()},
    ),
    "S3Input": Rule(
        name="ProcessingS3Input",
        order="s3_uri local_path s3_data_type s3_input_mode s3_data_distribution_type "
        "s3_compression_type".split(),
        defaults=_INPUT_DEFAULTS,
    ),
    "ProcessingOutput": Rule(
        name="ProcessingOutput",
        order="source destination output_name s3_upload_mode".split(),
        paths=PROCESSING_OUTPUT,
        same=("app_managed",),
        defaults={
            "s3_output:ProcessingS3Output.s3_uri": '""',
            "s3_output:ProcessingS3Output.s3_upload_mode": '"EndOfJob"',
        },
    ),
    "TrainingInput": Rule(
        name="Channel",
        order=_TRAINING_INPUT,
        paths=CHANNEL,
        same=("content_type", "input_mode"),
        defaults={"data_source:DataSource.s3_data_source:S3DataSource.s3_data_type": '"S3Prefix"'},
    ),
    "Estimator": Rule(
        name="ModelTrainer",
        order="image_uri role instance_count instance_type keep_alive_period_in_seconds "
        "volume_size volume_kms_key max_run input_mode output_path output_kms_key base_job_name "
        "sagemaker_session hyperparameters tags subnets security_group_ids".split(),
        paths=ESTIMATOR,
        same=_ESTIMATOR_SAME,
        spent=_UNWATCHED_OPTIONS,
        defaults=_TRAINING_DEFAULTS,
    ),
    **{
        name: Rule(
            name="ModelTrainer",
            order="entry_point framework_version py_version source_dir hyperparameters".split(),
            paths=ESTIMATOR,
            same=_ESTIMATOR_SAME,
            spent=_UNWATCHED_OPTIONS | {"model_dir": ("False",)},
            defaults=_TRAINING_DEFAULTS,
        )
        for name in ("PyTorch", "SKLearn", "XGBoost", "TensorFlow", "HuggingFace")
    },
    "SKLearnProcessor": Rule(
        name="ScriptProcessor",
        order=f"framework_version {_JOB} command {_PROCESSOR}".split(),
        same=("image_uri",),
        defaults={"command": '["python3"]'},
    ),
    "FrameworkProcessor": Rule(
        name="FrameworkProcessor",
        order=f"estimator_cls framework_version {_JOB} py_version image_uri command".split(),
        same=(*_PROCESSOR.split(), "code_location"),
    ),
    "Model": Rule(
        name="ModelBuilder",
        order="image_uri model_data role predictor_cls env name".split(),
        paths={
            "model_data": "s3_model_data_url",
            "role": "role_arn",
            "env": "env_vars",
            **_prefix_places(
                "network:Networking", {"enable_network_isolation": "enable_network_isolation"}
            ),
        },
        same=(SESSION,),
        lost={"name": NOT_ASKED, "predictor_cls": NOT_ASKED},
        defaults=NO_SCRIPT,
    ),
    "HyperparameterTuner": Rule(
        name="HyperparameterTuner",
        order="estimator objective_metric_name hyperparameter_ranges metric_definitions strategy "
        "objective_type max_jobs max_parallel_jobs max_runtime_in_seconds tags "
        "base_tuning_job_name".split(),
        paths={"estimator": "model_trainer", "estimator_name": "model_trainer_name"},
        same="early_stopping_type random_seed autotune hyperparameters_to_keep_static "
        "warm_start_config strategy_config completion_criteria_config".split(),
    ),
    "WarmStartConfig": Rule(
        name="HyperParameterTuningJobWarmStartConfig",
        order=["warm_start_type", "parents"],
        paths={"parents": "parent_hyper_parameter_tuning_jobs"},
    ),
    "EMRStep": Rule(
        name="EMRStep",
        order="name display_name description cluster_id step_config depends_on cache_config "
        "cluster_config execution_role_arn".split(),
    ),
}
"""Mapping of a class of v2 to the rule for its constructor; other constructors are unchanged."""

METHODS = {
    ("trainer", "fit"): Rule(
        name="train", order=["inputs", *_WAIT], paths={"inputs": "input_data_config"}, lost=_WAIT
    ),
    ("tuner", "fit"): Rule(name="tune", order=["inputs", "job_name"], lost=_WAIT),
    ("model", "create"): Rule(
        name="build",
        order="instance_type accelerator_type".split(),
        lost=dict.fromkeys(("instance_type", "accelerator_type"), NOT_ASKED),
        same=("tags",),
    ),
    ("model", "register"): Rule(name="register", order=_REGISTER[:4], same=_REGISTER),
    ("framework processor", "run"): Rule(
        name="run", order=f"code source_dir dependencies git_config {_RUN}".split()
    ),
}
"""Mapping of (kind of object, method of v2) to the rule for the call."""

KINDS = {
    "Estimator": "trainer",
    **dict.fromkeys(("PyTorch", "SKLearn", "XGBoost", "TensorFlow", "HuggingFace"), "trainer"),
    "Model": "model",
    "HyperparameterTuner": "tuner",
    "Transformer": "transformer",
    "Processor": "processor",
    "ScriptProcessor": "processor",
    "SKLearnProcessor": "processor",
    "PySparkProcessor": "processor",
    "SparkJarProcessor": "processor",
    "FrameworkProcessor": "framework processor",
}
"""Mapping of a class of v2 to the kind of its objects."""

ATTRIBUTES = {
    "trainer": {"role": "role", SESSION: SESSION, "image_uri": "training_image",
                "instance_type": "compute.instance_type",
                "instance_count": "compute.instance_count"},
    "model": {"role": "role_arn", "image_uri": "image_uri", "model_data": "s3_model_data_url"},
}  # fmt: skip
"""Mapping of a kind of object to a mapping of v2's attributes to v3's. Attributes of other kinds
are unchanged."""

STEPS = {
    "TrainingStep": ("estimator", "fit", {"inputs": "inputs"}),
    "TuningStep": ("tuner", "fit", {"inputs": "inputs"}),
    "ProcessingStep": (
        "processor",
        "run",
        {"inputs": "inputs", "outputs": "outputs", "job_arguments": "arguments", "code": "code",
         "kms_key": "kms_key"},
    ),
    "TransformStep": ("transformer", "transform", {"inputs": "inputs"}),
    "CreateModelStep": ("model", "create", {"inputs": "inputs"}),
}  # fmt: skip
"""Mapping of a step class to: the argument with the object that runs; the object's method; a
mapping of the step's arguments that are passed to the method to the method's arguments."""
