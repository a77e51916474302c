"""The shard step's settings."""

from steps.config import ProcessingCompute
from steps.shard.settings import ShardSettings


class ShardConfig(ShardSettings, ProcessingCompute):
    """Raw records become shards: checked, split by a hash, packed, with a manifest."""
