"""Rule about our jobs in containers without network access."""

from collections.abc import Iterator

from trainyard.validate.rules.images import match_aws_image
from trainyard.validate.rules.job_view import Job, select_container_jobs
from trainyard.validate.rules.rule import Violation, rule


@rule(
    "error",
    select=select_container_jobs,
    reason="pip cannot reach an index from an isolated container: the job fails at its start",
    fix="turn EnableNetworkIsolation off, set packages.wheelhouse: true, or name an image that "
    "holds the step's requirements.txt",
    source="developer guide, mkt-algo-model-internet-free; steps/container.sh, steps/train/step.py",
)
def packages_from_isolation(job: Job) -> Iterator[Violation]:
    field = f"{job.network_prefix}EnableNetworkIsolation"
    entry = str(job.read_raw("AppSpecification.ContainerEntrypoint"))
    installs = job.has_drivers or "steps/container.sh" in entry
    wheels = job.get("Environment.PIP_FIND_LINKS")
    if job.get(field) is True and installs and not wheels and match_aws_image(job.image):
        yield job.make_violation(
            field, f"{job.image} lacks packages that the job installs as it starts"
        )
