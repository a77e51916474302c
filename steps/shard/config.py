"""The shard step's settings."""

from steps.config import ProcessingCompute
from steps.shard.settings import ShardSettings


class ShardConfig(ShardSettings, ProcessingCompute):
    """Step that turns raw records into shards: checked, split by a hash, packed,
    with a manifest.
    """
