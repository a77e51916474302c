"""The shard step's settings."""

from steps.config import ProcessingCompute
from steps.shard.settings import ShardSettings


class ShardConfig(ShardSettings, ProcessingCompute):
    """Step that turns raw records into checked, packed shards, split by a hash."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the pip packages that the job needs besides those of a single instance."""
        return ("ray",) if self.instance_count > 1 else ()
