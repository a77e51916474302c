"""Rules that find problems in a definition which botocore's service model does not cover.

A rule reads only the definition, so it works for any pipeline; parameters have their default
values. Every module of this package is imported here, and thereby registers its rules.
Applications that build on Trainyard register their own rules by importing them.
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
"""Order in which modules are imported, and thereby the order of a step's findings. Modules that are
not listed follow."""

import_modules(__name__, __path__, ORDER)


def apply_rules(document: Document) -> Iterator[Finding]:
    """Apply all rules to the document, and iterate over their findings."""
    for rule in RULES.values():
        yield from rule.iter_findings(document)
