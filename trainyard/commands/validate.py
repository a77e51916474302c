"""Find what is wrong with a definition, before AWS does.

trainyard validate definition.json [--json]
trainyard validate --pipeline NAME [--region REGION]

A file needs neither AWS nor credentials. Exit status 1 when there is an error.
"""

from trainyard.definition_source import (
    DefinitionArgument,
    PipelineOption,
    RegionOption,
    definition_of,
)
from trainyard.validate import check
from trainyard.validate.finding_display import JsonOption, report


def main(
    definition: DefinitionArgument = None,
    pipeline: PipelineOption = None,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find what is wrong with a definition. Exit 0 when there is no error, 1 when there is one."""
    body = definition_of(definition, pipeline, region)
    report(check(body), body, as_json)
