"""The shard step's settings."""

from steps.config import ProcessingCompute
from steps.shard.settings import ShardSettings


class ShardConfig(ShardSettings, ProcessingCompute):
    """Step that turns raw records into shards: checked, split by a hash, packed,
    with a manifest.
    """

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the pip requirements beyond those of one instance."""
        return ("ray",) if self.instance_count > 1 else ()
