"""Choose the container image that each step runs in."""

from sagemaker.core import image_uris

from pipelines.recipe.config import Recipe
from steps.train.library_support import SMP_IMAGES
from trainyard.common.errors import RecipeError


def training_image(recipe: Recipe, region: str) -> str:
    """Return the recipe's own image, else AWS's PyTorch or SMP image for the instance type."""
    instance_type = recipe.train.instance_type
    if recipe.images.training:
        return recipe.images.training
    if recipe.train.loop and recipe.train.loop.strategy == "smp":
        return _smp(recipe, region, instance_type)
    return _pytorch(recipe, region, instance_type, "training")


def processing_image(recipe: Recipe, region: str, instance_type: str) -> str:
    """Return the recipe's own image, else AWS's PyTorch training image: it has what the jobs need,
    torch included.
    """
    return recipe.images.processing or _pytorch(recipe, region, instance_type, "training")


def evaluation_image(recipe: Recipe, region: str) -> str:
    """Return the image that a user's evaluation script runs in: the processing image, else the
    training image.
    """
    own_image = recipe.images.processing or recipe.images.training
    return own_image or processing_image(recipe, region, recipe.evaluate.instance_type)


def inference_image(recipe: Recipe, region: str) -> str:
    """Return the recipe's own image, else AWS's PyTorch inference image for the first inference
    instance.
    """
    instance_type = recipe.register_.inference_instances[0]
    return recipe.images.inference or _pytorch(recipe, region, instance_type, "inference")


def _smp(recipe: Recipe, region: str, instance_type: str) -> str:
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


def _pytorch(recipe: Recipe, region: str, instance_type: str, scope: str) -> str:
    version, python = _version(recipe, scope)
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
        lack: beginning of the error if AWS has no such image: the field, and what AWS lacks.
        fix: end of that error: what to change in the recipe.
        asked: arguments of ``image_uris.retrieve`` besides the region.

    Raises:
        RecipeError: AWS has no such image in the region.
    """
    try:
        uri = image_uris.retrieve(region=region, **arguments)
    except (ValueError, KeyError):  # its text lists all regions, and advises another SDK
        raise RecipeError(f"{lack} in {region}; {fix}") from None
    registry = recipe.images.registry
    return f"{registry}/{uri.partition('/')[2]}" if registry else uri


def _version(recipe: Recipe, scope: str) -> tuple[str, str]:
    """Return (version, Python) of AWS's PyTorch image, from the SDK's table of images.

    Raises:
        RecipeError: AWS has no such image; names the field, its value, and the choices.
    """
    images, table = recipe.images, image_uris.config_for_framework("pytorch")[scope]
    prefix = "inference_" if scope == "inference" else ""
    field = f"{prefix or 'pytorch_'}version"
    choice = getattr(images, field)
    # The jobs need Python 3.11 or newer, which is py311 here.
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


def job_pythons(recipe: Recipe) -> tuple[str, ...]:
    """Return the Python versions of the jobs' images, as ``3.12``.

    Raises:
        RecipeError: an image is the user's own, so its version is not known.
    """
    if recipe.packages.python:
        return recipe.packages.python
    images = recipe.images
    if own_field := next((f for f in ("training", "processing") if getattr(images, f)), None):
        raise RecipeError(
            f"packages.python: is missing, and images.{own_field} is your own: say which Python "
            "it has, as in ['3.12']"
        )
    digits = _version(recipe, "training")[1].removeprefix("py3")
    return (f"3.{digits}",)
