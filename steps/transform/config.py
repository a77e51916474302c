"""The transform step's settings."""

from pydantic import Field

from steps.config import S3_URI, ProcessingCompute
from steps.transform.settings import TransformSettings


class TransformConfig(TransformSettings, ProcessingCompute):
    """Batch scoring of further records by the model, once it is registered."""

    input: str = Field(pattern=S3_URI)
    """S3 prefix of the records, in any format that the shard step reads; the columns that are only
    trained or evaluated with, such as the label, may be missing."""
