r"""Derive least-privilege policies; show what a given policy lacks or exceeds.

trainyard permissions definition.json --role job
trainyard permissions definition.json --name demo --region us-east-1 \
    --pipeline-role arn:aws:iam::111122223333:role/demo --template > roles.yaml
trainyard permissions --pipeline NAME --check roles.yaml

A file needs neither AWS nor credentials. A resource that no definition names (the application of an
EMR step, a model from another pipeline) is a gap, named on stderr and in the template's Metadata,
to be filled by hand: the exit status is then 2. It is 1 where --check finds a shortage or, without
gaps, an excess.
"""

from typing import Annotated

import typer

from trainyard.common.errors import DefinitionError
from trainyard.definition_source import (
    DefinitionArgument,
    PipelineOption,
    RegionOption,
    deployed_pipeline,
)
from trainyard.permissions.pipeline_subject import from_definition, from_file
from trainyard.permissions.policy_answer import (
    CheckOption,
    EndpointsOption,
    JobRoleOption,
    RoleOption,
    TemplateOption,
    answer,
)

HEAD = """\
# The roles around the pipeline {name}, derived from its definition. Do not edit; make it again with
#   trainyard permissions ... --template
"""


def main(
    definition: DefinitionArgument = None,
    pipeline: PipelineOption = None,
    name: Annotated[str, typer.Option(help="With a file: the pipeline's name.")] = "",
    region: RegionOption = None,
    pipeline_role: Annotated[str, typer.Option(help="With a file: its role's ARN.")] = "",
    role: RoleOption = None,
    job_role: JobRoleOption = None,
    as_template: TemplateOption = False,
    check: CheckOption = None,
    as_endpoints: EndpointsOption = False,
) -> None:
    """Derive least-privilege policies from a definition."""
    if definition is not None and pipeline is None:
        subject = from_file(
            definition, name=name, region=region or "", role=pipeline_role, asked=role
        )
    elif pipeline is not None and definition is None:
        there = deployed_pipeline(pipeline, region)
        state, where = there.state, there.arn.split(":")[3]
        subject = from_definition(
            state.definition, f"pipeline {pipeline}", name=pipeline, region=where, role=state.role
        )
    else:
        raise DefinitionError("give either a definition's JSON file or --pipeline NAME")
    head = HEAD.format(name=subject.name)
    answer(subject, head, role, job_role, as_template, check, as_endpoints)
