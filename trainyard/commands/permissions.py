r"""Derive least-privilege policies; show what a given policy lacks or exceeds.

trainyard permissions definition.json --role job
trainyard permissions definition.json --name demo --region us-east-1 \
    --pipeline-role arn:aws:iam::111122223333:role/demo --template > roles.yaml
trainyard permissions --pipeline NAME --check roles.yaml

A file needs neither AWS nor credentials. A resource that no definition names (the application of an
EMR step, a model from another pipeline) is a gap. Gaps are listed on stderr and in the template's
Metadata, to be filled in by hand; the exit status is then 2. It is 1 if --check finds that the
policy allows too little or, if there are no gaps, too much.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from trainyard.definition_source import (
    ONE_DEFINITION,
    DefinitionArgument,
    PipelineOption,
    RegionOption,
    find_deployed_pipeline,
)
from trainyard.permissions.pipeline_subject import Subject, parse_subject, read_subject
from trainyard.permissions.policy_answer import (
    CheckOption,
    EndpointsOption,
    JobRoleOption,
    RoleOption,
    TemplateOption,
    print_permissions,
)
from trainyard.terminal import needs

HEAD = """\
# The roles around the pipeline {name}, derived from its definition. Do not edit; regenerate with
#   trainyard permissions ... --template
"""


@needs(ONE_DEFINITION)
def main(
    definition: DefinitionArgument = None,
    pipeline: PipelineOption = None,
    name: Annotated[str, typer.Option(help="With a file: the pipeline's name.")] = "",
    region: RegionOption = None,
    pipeline_role: Annotated[
        str, typer.Option(metavar="ARN", help="With a file: the pipeline role's ARN.")
    ] = "",
    role: RoleOption = None,
    job_role: JobRoleOption = None,
    as_template: TemplateOption = False,
    check: CheckOption = None,
    as_endpoints: EndpointsOption = False,
    *,
    subject: Callable[[], Subject] | None = None,
    root: str | None = None,
    head: str = HEAD,
    deliver: Callable[[Subject], None] | None = None,
) -> None:
    """Derive least-privilege policies from a definition.

    An application may pass: ``root``, the s3:// prefix to which an upsert writes; ``deliver``, a
    function that is called with the subject instead of printing the policies.
    """
    if subject:
        pipeline_subject = subject()
    elif definition:
        pipeline_subject = read_subject(
            definition,
            name=name,
            region=region or "",
            role=pipeline_role,
            root=root,
            policy_name=role,
        )
    else:
        current = find_deployed_pipeline(str(pipeline), region)
        state = current.state
        pipeline_subject = parse_subject(
            state.definition,
            f"pipeline {pipeline}",
            name=state.name,
            region=current.arn.split(":")[3],
            role=state.role,
            root=root,
        )
    if deliver:
        deliver(pipeline_subject)
    else:
        text = head.format(name=pipeline_subject.name)
        print_permissions(pipeline_subject, text, role, job_role, as_template, check, as_endpoints)
