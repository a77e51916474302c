"""Find what is wrong with a definition, before AWS does.

trainyard validate definition.json [--json]
trainyard validate --pipeline NAME [--region REGION]

A file needs neither AWS nor credentials. Exit status 1 when there is an error.
"""

from collections.abc import Callable

from trainyard.definition_source import (
    ONE_DEFINITION,
    DefinitionArgument,
    PipelineOption,
    RegionOption,
    read_definition_text,
)
from trainyard.terminal import needs
from trainyard.validate import Finding, check_definition
from trainyard.validate.all_checks import JsonOption, report_findings


@needs(ONE_DEFINITION)
def main(
    definition: DefinitionArgument = None,
    pipeline: PipelineOption = None,
    region: RegionOption = None,
    as_json: JsonOption = False,
    *,
    subject: Callable[[], tuple[str, list[Finding]]] | None = None,
) -> None:
    """Find what is wrong with a definition. Exit 0 when there is no error, 1 when there is one.

    ``subject`` is an application's function. It returns the definition ("" if there is none) and
    all findings in it.
    """
    if subject:
        body, findings = subject()
    else:
        body = read_definition_text(definition, pipeline, region)
        findings = check_definition(body)
    report_findings(findings, body, as_json)
