"""Upload what a compiled pipeline refers to; refuse what the service would refuse later."""

from typing import Any

from pipelines.compile.compilation import Asset, CompiledPipeline
from pipelines.deploy.pipeline_objects import ensure_bucket, sync
from pipelines.rules import check
from trainyard.common.errors import DefinitionError
from trainyard.terminal import console
from trainyard.validate.finding_display import line, show

DEFINITION = "definition.json"
"""Name of the object that holds a definition which upsert does not deploy."""


def definition_asset(definition: CompiledPipeline) -> Asset:
    """Return the folder of the definition itself, beside those of the code."""
    code = definition.assets[0]
    return Asset(code.bucket, code.prefix, {DEFINITION: definition.body.encode()})


def refuse_invalid(definition: CompiledPipeline) -> None:
    """Refuse errors that the service would find later; show what would only cost money."""
    findings = check(definition.body)
    wrong = [line(finding) for finding in findings if finding.severity == "error"]
    if wrong:
        raise DefinitionError(f"pipeline {definition.name}:\n  " + "\n  ".join(wrong))
    if findings:
        show(findings, "nothing that the service refuses")


def make_buckets(s3: Any, definition: CompiledPipeline) -> None:
    """Create the buckets that the pipeline's code goes to, where they are missing."""
    for bucket in sorted({asset.bucket for asset in definition.assets}):
        if ensure_bucket(s3, bucket, definition.region):
            console.print(f"created bucket {bucket}")


def upload_code(s3: Any, definition: CompiledPipeline) -> int:
    """Upload the folders of code that are missing or different; return the bytes uploaded."""
    make_buckets(s3, definition)
    return sum(
        sync(s3, asset.bucket, asset.key, asset.files, kms_key=definition.kms_key)
        for asset in definition.assets
    )
