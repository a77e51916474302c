"""Check whether container images fit the kind of machine, the region and the account."""

import re
from collections import Counter
from collections.abc import Iterator

from trainyard.language.definition_document import Document, Step
from trainyard.validate.rules.job_view import Job, iter_strings, select_container_jobs
from trainyard.validate.rules.rule import Violation, rule, select_document

IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<repository>[\w./-]+)(?::(?P<tag>[\w.-]+))?(?:@sha256:[0-9a-f]+)?"
)
_ARN_REGION = re.compile(r"arn:aws[a-z-]*:(?:kms|lambda|sagemaker|ecr|sqs):(?P<region>[a-z0-9-]+):")
_AWS_REPOSITORY = re.compile(
    r"(?:pytorch|tensorflow|huggingface-pytorch|autogluon|mxnet)-(?:training|inference)\S*"
)
COMMON_ACCOUNT = "763104351884"
ACCOUNTS = {
    "af-south-1": "626614931356",
    "ap-east-1": "871362719292",
    "ap-east-2": "975050140332",
    "ap-northeast-3": "364406365360",
    "ap-south-2": "772153158452",
    "ap-southeast-3": "907027046896",
    "ap-southeast-4": "457447274322",
    "ap-southeast-5": "550225433462",
    "ap-southeast-6": "633930458069",
    "ap-southeast-7": "590183813437",
    "ca-west-1": "204538143572",
    "cn-north-1": "727897471807",
    "cn-northwest-1": "727897471807",
    "eu-central-2": "380420809688",
    "eu-south-1": "692866216735",
    "eu-south-2": "503227376785",
    "il-central-1": "780543022126",
    "me-central-1": "914824155844",
    "me-south-1": "217643126080",
    "me-west-1": "124382933778",
    "mx-central-1": "637423239942",
    "us-gov-east-1": "446045086412",
    "us-gov-west-1": "442386744353",
}
"""Mapping of a region to the account of AWS's deep learning containers, if that is not
``COMMON_ACCOUNT`` (SDK 3.27, sagemaker/core/image_uri_config/pytorch.json, PyTorch 2.8.0)."""


def match_aws_image(image: str | None) -> re.Match[str] | None:
    """Return the match of an AWS deep learning container's URI; None for any other image."""
    match = IMAGE.fullmatch(image or "")
    if not match or match["account"] not in {COMMON_ACCOUNT, *ACCOUNTS.values()}:
        return None
    return match if _AWS_REPOSITORY.fullmatch(match["repository"]) else None


def parse_torch_version(image: str | None) -> str | None:
    """Return the PyTorch version in the tag of AWS's PyTorch or SMP image; None for any other."""
    match = IMAGE.fullmatch(image or "")
    is_sagemaker_image = match and (
        match_aws_image(image) or match["repository"] == "smdistributed-modelparallel"
    )
    if (
        not match
        or not is_sagemaker_image
        or not match["repository"].startswith(("pytorch-", "smdistributed-"))
    ):
        return None
    version = re.match(r"\d+\.\d+(\.\d+)?", match["tag"] or "")
    return version[0] if version else None


def find_image_kind(image: str | None) -> str | None:
    """Return the kind of machine that an image is built for: cpu, gpu or neuron.

    Return None if neither the repository's name nor the tag says it.
    """
    name = (image or "").rpartition("/")[2]
    if "neuron" in name:
        return "neuron"
    tag = re.split(r"[-:]", name)
    if "gpu" in tag or any(re.fullmatch(r"cu1\d\d", part) for part in tag):
        return "gpu"
    return "cpu" if "cpu" in tag else None


@rule(
    "warning",
    select=select_container_jobs,
    reason="the framework finds no GPU and computes on the CPU, or fails when it needs CUDA",
    fix="use the image's -cpu- variant, or an instance type with GPUs",
    source="deep-learning-containers, available_images.md: one image for CPU, one for GPU",
)
def gpu_image_on_cpu_machine(job: Job) -> Iterator[Violation]:
    if job.machine and job.machine.kind == "cpu" and find_image_kind(job.image) == "gpu":
        yield job.make_violation(
            job.image_path, f"{job.image} is for GPUs, {job.instance_type} has none"
        )


@rule(
    "warning",
    select=select_container_jobs,
    reason="the accelerators are paid for and never used",
    fix="use the image's -gpu- variant, or a CPU instance type",
    source="deep-learning-containers, available_images.md: one image for CPU, one for GPU",
)
def cpu_image_on_accelerator(job: Job) -> Iterator[Violation]:
    machine = job.machine
    if machine and machine.kind != "cpu" and find_image_kind(job.image) == "cpu":
        devices = f"{machine.accelerators} × {machine.accelerator}"
        yield job.make_violation(
            job.image_path, f"{job.image} is for CPUs, {machine.name} has {devices}"
        )


@rule(
    "error",
    select=select_container_jobs,
    reason="CUDA finds no device on Trainium, and Neuron finds none on a GPU instance",
    fix="use an image for this kind of accelerator (pytorch-training-neuronx for Trainium)",
    source="deep-learning-containers, available_images.md: Neuron containers have their own images",
)
def image_of_another_accelerator(job: Job) -> Iterator[Violation]:
    machine = job.machine
    if machine and {machine.kind, find_image_kind(job.image)} == {"gpu", "neuron"}:
        problem = f"{job.image} is not for {job.instance_type}, which has {machine.accelerator}"
        yield job.make_violation(job.image_path, problem)


@rule(
    "error",
    select=select_document,
    reason="a job uses images, keys and functions of its own region: the service refuses the step",
    fix="use those of the region that the pipeline is in",
    source="developer guide, S3 data source and KMS: the same region as the job; for images, the "
    "guide says so only for Studio, for jobs it is from memory",
)
def regions_differ(document: Document) -> Iterator[Violation]:
    regions = list(_iter_regions(document))
    images = Counter(region for *_, region, is_image in regions if is_image)
    if not images:
        return
    # A definition does not contain its region: it is assumed to be that of most images.
    common_region = images.most_common(1)[0][0]
    for step, path, region, _ in regions:
        if region != common_region:
            problem = f"is in region {region}, the images are in {common_region}"
            yield Violation(step=step, path=path, problem=problem)


def _iter_regions(document: Document) -> Iterator[tuple[Step, str, str, bool]]:
    """Iterate over the images and ARNs that have a region: (step, path, region, whether it is an
    image).
    """
    for step in document.steps:
        for path, text in iter_strings(
            document.resolve_value(step.own_arguments), f"{step.path}.Arguments"
        ):
            if match := IMAGE.fullmatch(text) or _ARN_REGION.match(text):
                yield step, path, match["region"], match.re is IMAGE


@rule(
    "error",
    select=select_container_jobs,
    reason="the account has no such repository in that region: the image cannot be pulled",
    fix="name the registry of the region",
    source="SDK 3.27, sagemaker/core/image_uri_config/pytorch.json",
)
def image_of_another_registry(job: Job) -> Iterator[Violation]:
    image = match_aws_image(job.image)
    if image and image["account"] != (
        registry_account := ACCOUNTS.get(image["region"], COMMON_ACCOUNT)
    ):
        problem = f"AWS's images in {image['region']} are in account {registry_account}, not in "
        yield job.make_violation(
            job.image_path,
            problem + image["account"],
            f"write {image[0].replace(image['account'], registry_account, 1)}",
        )
