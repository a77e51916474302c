"""The recipe's section ``promotion``: from which account packages come to this one."""

from pipelines.recipe.aws_section import RoleArn
from steps.config import Section


class Promotion(Section):
    """Where ``python -m pipelines.promote`` gets packages from, and whose approval counts there."""

    source: str
    """Environment of this recipe whose Approved packages are promoted here."""

    reader: RoleArn
    """ARN of the role of that environment's account that may read its registry and executions. This
    account's promoter assumes it; ``pipelines.promote --policies`` prints its policies."""

    approvers: tuple[str, ...] = ()
    """ARNs of the roles whose approval there counts; default: every role of that account."""
