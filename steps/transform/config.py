"""The transform step's settings."""

from steps.config import ProcessingCompute, S3Uri
from steps.transform.settings import TransformSettings


class TransformConfig(TransformSettings, ProcessingCompute):
    """Batch scoring of further records by the model, once it is registered."""

    input: S3Uri
    """S3 prefix of the records, in any format that the shard step reads. Columns that are used only
    for training or evaluation, such as the label, may be missing."""
