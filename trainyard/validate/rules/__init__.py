"""A table of rules about problems that botocore's service model does not cover.

A rule reads the definition alone, so it works for any pipeline. Every module here is imported, and
its rules register themselves; those of an application do when it imports them. Parameters have
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
"""Order of a step's findings by module; modules that are not listed follow."""

import_modules(__name__, __path__, ORDER)


def findings(document: Document) -> Iterator[Finding]:
    """Iterate over the findings of all rules in the document."""
    for rule in RULES.values():
        yield from rule.findings(document)
