"""Rule about AWS images that cannot run our jobs, according to AWS's published package lists."""

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from pipelines.compile.compilation import JOBS, WITH_WORKLOAD, parse_requirement_lines
from pipelines.compile.package_lock import (
    PACKAGES,
    compare_with_image,
    parse_lock,
    select_with_dependencies,
)
from pipelines.rules.trainyard_jobs import select_our_trainings
from trainyard.image_packages import Image, find_published_image
from trainyard.language.definition_document import Document
from trainyard.validate.rules.images import match_aws_image
from trainyard.validate.rules.job_view import Job, select_container_jobs
from trainyard.validate.rules.rule import Violation, rule

CHECKOUT = Path(__file__).parents[2]
WITH_TORCH = ("train", "evaluate", "transform")


def select_our_jobs(document: Document) -> Iterator[tuple[str, Job]]:
    """Yield (name in ``steps/``, job) of our jobs; for a rule's ``select``."""
    yield from (("train", job) for job in select_our_trainings(document))
    for job in select_container_jobs(document):
        entry = job.get("AppSpecification.ContainerEntrypoint")
        if isinstance(entry, list) and any("steps/container.sh" in str(part) for part in entry):
            yield str(entry[-1]), job


@rule(
    "error",
    select=select_our_jobs,
    reason="pip cannot install the locked packages there, or the job's first import fails: it "
    "fails at its start, after waiting for machines",
    fix="leave the image out of the recipe, to use AWS's PyTorch image, or name an image with "
    "torch and Python 3.11 or newer",
    source="trainyard/image_packages.yaml: each image's source; pyproject.toml",
)
def image_cannot_run_job(training_job: tuple[str, Job]) -> Iterator[Violation]:
    step, job = training_job
    image = find_published_image(job.image)
    python = image.python if image else _parse_python_version(job.image)
    name = image.name if image else job.image
    if python and Version(python) < Version("3.11"):
        packages = f": {_list_broken(image)}" if image and step in WITH_WORKLOAD else ""
        yield job.make_violation(
            job.image_path, f"{name} has Python {python}, {step} needs 3.11{packages}"
        )
    elif image and step in WITH_TORCH and "torch" not in image.packages:
        yield job.make_violation(job.image_path, f"{name} has no torch, which {step} imports")


def _list_broken(image: Image) -> str:
    """Return text that names packages of the lock that the image's Python cannot install."""
    lock = parse_lock((CHECKOUT / PACKAGES).read_text(encoding="utf-8"), PACKAGES)
    package_names = parse_requirement_lines((CHECKOUT / JOBS).read_text(encoding="utf-8"))
    broken_packages = [
        conflict.split(" needs ")[0]
        for conflict in compare_with_image(
            select_with_dependencies(lock, package_names, JOBS), image
        ).broken
    ]
    first = [
        package for package in broken_packages if re.match(r"(numpy|pandas|scikit-learn) ", package)
    ]
    more = len(broken_packages) - len(first)
    return f"{', '.join(first)} and {more} more packages cannot be installed"


def _parse_python_version(image: str | None) -> str | None:
    """Return the Python version in the tag of an AWS image, such as 3.10 for ``py310``; None if it
    has none.
    """
    image_match = match_aws_image(image)
    tag = re.search(r"-py3(\d+)\b", image_match["tag"] or "") if image_match else None
    return f"3.{tag[1]}" if tag else None
