"""What will go wrong, and botocore's service model cannot know: one table of rules.

A rule reads the definition alone, so any pipeline profits. Every module here is imported, and its
rules register themselves; those of an application do when it imports them. Parameters stand at
their defaults.
"""

from collections.abc import Iterator

from trainyard.language.definition_document import Document
from trainyard.registration import import_modules
from trainyard.validate.location import Finding
from trainyard.validate.rules.rule import RULES

ORDER = (
    *("machines", "images", "network", "spot", "channels", "s3_locations", "caching"),
    *("retry_policies", "drivers", "tags", "tuning_limits", "search_limits", "transform"),
    *("xgboost_settings", "metric_regexes", "addresses", "plain_secrets"),
)
"""In which a step's findings are told; those of modules that are not named follow."""

import_modules(__name__, __path__, ORDER)


def findings(document: Document) -> Iterator[Finding]:
    """Everything that the rules have to say of the document."""
    for rule in RULES.values():
        yield from rule.findings(document)
