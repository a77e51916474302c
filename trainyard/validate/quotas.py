"""Quotas of the definition as a whole; those of a step's request are lengths in its shape."""

from collections.abc import Iterator

from trainyard.language.document import Document
from trainyard.validate.findings import Finding
from trainyard.validate.form import ROOT
from trainyard.validate.shapes import service_shapes


def findings(body: str, document: Document) -> Iterator[Finding]:
    """Length of the definition and number of parameters, against botocore's model."""
    longest = service_shapes("sagemaker")["PipelineDefinition"]["max"]
    if len(body) > longest:
        yield ROOT.error(
            "quota",
            f"the definition has {len(body)} characters, at most {longest} are taken",
            why="CreatePipeline refuses it",
            fix="use fewer steps or shorter settings, or PipelineDefinitionS3Location",
            source="botocore: CreatePipelineRequest.PipelineDefinition",
        )
    most = service_shapes("sagemaker")["ParameterList"]["max"]
    if len(document.parameters) > most:
        yield ROOT.at("Parameters").error(
            "quota",
            f"{len(document.parameters)} parameters, at most {most} can be given at a start",
            why="StartPipelineExecution takes no more",
            fix="make constants of those that never change",
            source="botocore: StartPipelineExecutionRequest.PipelineParameters",
        )
