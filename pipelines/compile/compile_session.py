"""SDK session that compiles without AWS: it collects what would be uploaded."""

# isort: off
import pipelines.compile.quiet_sdk  # noqa: F401 - prepares the SDK, so it must come first

# isort: on

from functools import cache
from pathlib import Path

import boto3
import botocore.loaders
import botocore.session
from jsonschema.validators import validator_for
from sagemaker.core import image_uris
from sagemaker.core.config import config, config_manager
from sagemaker.core.workflow.parameters import (
    Parameter,
    ParameterFloat,
    ParameterInteger,
    ParameterString,
)
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.mlops.workflow import steps
from sagemaker.mlops.workflow.retry import (
    RetryPolicy,
    SageMakerJobExceptionTypeEnum,
    SageMakerJobStepRetryPolicy,
    StepExceptionTypeEnum,
    StepRetryPolicy,
)
from sagemaker.mlops.workflow.steps import CacheConfig

from conditions.no_champion import UNRESOLVED_ARN
from pipelines.compile.compilation import Asset, read_folder
from pipelines.recipe.config import Recipe
from pipelines.registry.ledger import PARAMETER as LOOK_PARAMETER
from steps.gate.config import name_threshold_parameter
from steps.train.config import SMP_IMAGES
from trainyard.common.errors import RecipeError
from trainyard.language.retries import WORDS


class _ConfigValidation:
    """Stand-in for the module ``jsonschema`` in the SDK: it does not check the schema itself.

    The SDK validates its defaults at every look-up, 78 times per definition, and each time also
    checks its own constant schema against the meta-schema. That took 95 % of the time of building a
    definition.
    """

    @staticmethod
    def validate(instance: dict, schema: dict) -> None:
        """Validate ``instance`` against ``schema``, which is not checked itself."""
        validator_for(schema)(schema).validate(instance)


config.jsonschema = config_manager.jsonschema = _ConfigValidation

_loader = cache(botocore.loaders.create_loader)


def _create_loader(search_path_string: str | None = None) -> botocore.loaders.Loader:
    """Return one loader of botocore's service models for all sessions; it caches what it has read.

    The SDK creates a session for every step, and each would read megabytes of models again, which
    took two thirds of the time of building a definition.
    """
    return _loader(search_path_string)


botocore.loaders.create_loader = botocore.session.create_loader = _create_loader


class _LocalClient(steps.LocalSagemakerClient):
    """Client of the SDK's local mode that creates no session.

    The SDK creates one for each processing step, only to ask for the name of a method. A third of
    the processor time of building a definition went into these sessions and clients.
    """

    def __init__(self) -> None:
        pass


steps.LocalSagemakerClient = _LocalClient


class CompileSession(PipelineSession):
    """SDK session that collects uploads as assets, which are named by their content.

    The SDK puts the code and drivers of a training job under a key with a timestamp, and uploads
    them at every ``definition()``. Here the key follows from the content, and nothing is uploaded.
    """

    def __init__(self, region: str, bucket: str, prefix: str) -> None:
        # No service accepts these keys: a call that is made by accident cannot do anything.
        boto_session = boto3.Session(
            region_name=region, aws_access_key_id="offline", aws_secret_access_key="offline"
        )
        super().__init__(boto_session=boto_session, default_bucket=bucket)
        self.bucket = bucket
        self.prefix = prefix
        self.assets: dict[str, Asset] = {}

    def default_bucket(self) -> str:
        """Return the bucket's name; unlike the SDK's own, it does not create the bucket."""
        return self.bucket

    def add_asset(self, files: dict[str, bytes]) -> str:
        """Store a folder as an asset of this session; return its S3 URI."""
        asset = Asset(self.bucket, f"{self.prefix}/code", files)
        self.assets[asset.key] = asset
        return asset.uri

    def extend_folder(self, uri: str, files: dict[str, bytes]) -> str:
        """Store an asset with ``files`` and those of the asset at ``uri``; return its S3 URI."""
        [folder] = [asset for asset in self.assets.values() if asset.uri == uri]
        return self.add_asset({**folder.files, **files})

    def upload_data(self, path: str, *_: object, **__: object) -> str:
        """Store the folder at ``path`` as an asset, for the SDK's drivers; return its S3 URI."""
        return self.add_asset(read_folder(Path(path)))


# Settings of a recipe for the whole pipeline: its parameters, the steps' cache and retries.

STEP_CAUSES = {member.value: member for member in StepExceptionTypeEnum}
JOB_CAUSES = {member.value: member for member in SageMakerJobExceptionTypeEnum}
"""The SDK's enum members by exception type. Calling one of these enums would always return its
first member.
"""


def build_cache_config(recipe: Recipe) -> CacheConfig | None:
    """Return the steps' cache settings, or None if the cache is off or ``train.fsx`` is set.

    With ``train.fsx``, the folder of the shards is named after the execution's id, so a later
    execution would not find cached shards in it.
    """
    if not recipe.cache.enabled or recipe.train.fsx:
        return None
    return CacheConfig(enable_caching=True, expire_after=recipe.cache.expire_after)


def build_retry_policies(recipe: Recipe) -> tuple[RetryPolicy, ...]:
    """Return the recipe's retry policies: at most one for faults of the service and one for faults
    of the job, each with all its causes.
    """
    retry = recipe.retry
    if not retry.max_attempts:
        return ()
    timing = {
        "interval_seconds": retry.interval_seconds,
        "backoff_rate": retry.backoff_rate,
        "max_attempts": retry.max_attempts,
    }
    causes = [WORDS[word] for word in retry.causes]
    policies: list[RetryPolicy] = []
    if step := [STEP_CAUSES[cause.name] for cause in causes if not cause.is_job_failure]:
        policies.append(StepRetryPolicy(exception_types=step, **timing))
    if job := [JOB_CAUSES[cause.name] for cause in causes if cause.is_job_failure]:
        policies.append(SageMakerJobStepRetryPolicy(exception_types=job, **timing))
    return tuple(policies)


def build_pipeline_parameters(
    recipe: Recipe, no_champion: str
) -> dict[str, Parameter | str | int | float]:
    """Return the pipeline's parameters and constants, by name.

    Parameters are the values that people change from execution to execution without an upsert, and
    those that ``start`` finds out. Values that the recipe does not make overridable are returned as
    constants.

    ``no_champion``: the URI that is used when there is no champion's model.
    """
    overridable_values: dict[str, str | int | None] = {
        "InputUri": recipe.data.input if recipe.data else None,
        "ShardInstanceCount": recipe.shard.instance_count,
        "TrainInstanceType": recipe.train.instance_type,
        "TrainInstanceCount": recipe.train.instance_count,
        "TransformInputUri": recipe.transform.input if recipe.transform else None,
        "MaxSteps": recipe.train.loop.max_steps if recipe.train.loop else None,
    }
    values = {
        **{n: v for n, v in overridable_values.items() if n in recipe.parameters and v is not None},
        **{name_threshold_parameter(name): value for name, value in recipe.gate.thresholds.items()},
    }
    run_values: dict[str, str | int] = {
        "ChampionArn": UNRESOLVED_ARN,
        "ChampionModelUri": no_champion,
    }
    run_values |= {LOOK_PARAMETER: 0} if recipe.gate.comparisons else {}
    # A field that the recipe does not list as overridable is a constant: a person who may start an
    # execution must not be able to choose the thresholds of its verdict.
    constants = {n: value for n, value in values.items() if n not in recipe.pipeline.overridable}
    kinds = {str: ParameterString, int: ParameterInteger, float: ParameterFloat}
    parameters = {
        n: kinds[type(v)](n, default_value=v)
        for n, v in (values | run_values).items()
        if n not in constants
    }
    return constants | parameters


# Choose the container image that each step runs in.


def choose_training_image(recipe: Recipe, region: str) -> str:
    """Return the recipe's training image, or AWS's PyTorch or SMP image for the instance type."""
    instance_type = recipe.train.instance_type
    if recipe.images.training:
        return recipe.images.training
    if recipe.train.loop and recipe.train.loop.strategy == "smp":
        return _find_smp_image(recipe, region, instance_type)
    return _find_pytorch_image(recipe, region, instance_type, "training")


def choose_processing_image(recipe: Recipe, region: str, instance_type: str) -> str:
    """Return the recipe's processing image, or AWS's PyTorch training image, which has the packages
    that the jobs need, including torch.
    """
    return recipe.images.processing or _find_pytorch_image(
        recipe, region, instance_type, "training"
    )


def choose_evaluation_image(recipe: Recipe, region: str) -> str:
    """Return the image in which a user's evaluation script runs: the recipe's processing image, or
    its training image, or AWS's PyTorch training image.
    """
    own_image = recipe.images.processing or recipe.images.training
    return own_image or choose_processing_image(recipe, region, recipe.evaluate.instance_type)


def choose_inference_image(recipe: Recipe, region: str) -> str:
    """Return the recipe's inference image, or AWS's PyTorch inference image for the first inference
    instance type.
    """
    instance_type = recipe.register_.inference_instances[0]
    return recipe.images.inference or _find_pytorch_image(
        recipe, region, instance_type, "inference"
    )


def _find_smp_image(recipe: Recipe, region: str, instance_type: str) -> str:
    """Return AWS's SMP training image (SageMaker's model parallel library)."""
    version = recipe.images.pytorch_version
    return _retrieve_image(
        recipe,
        region,
        f"images: AWS has no SMP image of PyTorch {version}",
        "choose another region or name images.training",
        framework="pytorch-smp",
        version=version,
        instance_type=instance_type,
        image_scope="training",
        container_version=SMP_IMAGES[version],
    )


def _find_pytorch_image(recipe: Recipe, region: str, instance_type: str, scope: str) -> str:
    """Return AWS's PyTorch image for ``scope``, which is ``training`` or ``inference``."""
    version, python = _find_pytorch_version(recipe, scope)
    return _retrieve_image(
        recipe,
        region,
        f"images: AWS has no PyTorch {version} ({python}) {scope} image for {instance_type}",
        f"choose another version or name images.{scope}",
        framework="pytorch",
        version=version,
        py_version=python,
        instance_type=instance_type,
        image_scope=scope,
    )


def _retrieve_image(recipe: Recipe, region: str, lack: str, fix: str, **arguments: str) -> str:
    """Return the URI of an image in the SDK's table, or of its copy in the recipe's registry.

    Args:
        lack: start of the error message if AWS has no such image: the field, and what is missing.
        fix: end of that message: what to change in the recipe.
        arguments: arguments of ``image_uris.retrieve`` besides the region.

    Raises:
        RecipeError: AWS has no such image in the region.
    """
    try:
        uri = image_uris.retrieve(region=region, **arguments)
    except (ValueError, KeyError):  # their text lists all regions, and recommends another SDK
        raise RecipeError(f"{lack} in {region}; {fix}") from None
    registry = recipe.images.registry
    return f"{registry}/{uri.partition('/')[2]}" if registry else uri


def _find_pytorch_version(recipe: Recipe, scope: str) -> tuple[str, str]:
    """Return (version, Python version) of AWS's PyTorch image, from the SDK's table of images.

    Raises:
        RecipeError: AWS has no such image; names the field, its value, and the choices.
    """
    images, table = recipe.images, image_uris.config_for_framework("pytorch")[scope]
    prefix = "inference_" if scope == "inference" else ""
    field = f"{prefix or 'pytorch_'}version"
    choice = getattr(images, field)
    # The jobs need Python 3.11 or newer, which the table calls py311.
    pythons = {
        version: [
            name
            for name in entry["py_versions"]
            if name.startswith("py3") and int(name.removeprefix("py3") or 0) >= 11
        ]
        for version, entry in table["versions"].items()
    }
    version = table["version_aliases"].get(choice, choice)
    if not pythons.get(version):
        known_versions = ", ".join(version for version, names in pythons.items() if names)
        raise RecipeError(
            f"images.{field}: is {choice!r}; AWS's PyTorch {scope} images with Python 3.11 or "
            f"newer are {known_versions}: choose one, or name images.{scope}"
        )
    python = getattr(images, f"{prefix}python_version") or pythons[version][-1]
    if python not in pythons[version]:
        raise RecipeError(
            f"images.{prefix}python_version: is {python!r}; AWS's PyTorch {version} {scope} image "
            f"has {' or '.join(pythons[version])}: set it to that, or leave it out"
        )
    return version, python


def list_job_pythons(recipe: Recipe) -> tuple[str, ...]:
    """Return the Python versions of the jobs' images, such as ``3.12``.

    Raises:
        RecipeError: an image is the user's own, so its version is not known.
    """
    if recipe.packages.python:
        return recipe.packages.python
    images = recipe.images
    if own_field := next((f for f in ("training", "processing") if getattr(images, f)), None):
        raise RecipeError(
            f"packages.python: is missing, and images.{own_field} is your own image: name its "
            "Python version, as in ['3.12']"
        )
    digits = _find_pytorch_version(recipe, "training")[1].removeprefix("py3")
    return (f"3.{digits}",)
