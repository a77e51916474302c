"""The recipe's section ``train.watch``, made of the rules that there are. No torch here."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from training.watching.rule import RuleSettings
from training.watching.rules import RULES
from trainyard.common.errors import TrainingError


class _Rules(BaseModel):
    """Which rules watch the training, and how; each rule is on, and warns, if left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def of(self, name: str) -> RuleSettings:
        """The settings of a rule."""
        return getattr(self, name)


_FIELDS: dict[str, Any] = {
    name: (rule.settings, Field(default_factory=rule.settings, description=rule.settings.__doc__))
    for name, rule in RULES.items()
}

Watching = create_model("Watching", __base__=_Rules, __doc__=_Rules.__doc__, **_FIELDS)
"""A field for each rule, with its settings."""


def read_watching(text: str) -> Any:
    """What the job is told, as JSON; the defaults where it is told nothing.

    Raises:
        TrainingError: a field is unknown or wrong; names it.
    """
    try:
        return Watching.model_validate_json(text or "{}")
    except ValidationError as error:
        where = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
        raise TrainingError(f"watch: {where}; see the recipe's train.watch") from None
