"""What will go wrong, and botocore's service model cannot know: one table of rules.

A rule reads the definition alone, so any pipeline profits; those on training settings speak only
where the hyperparameters are Trainyard's. Parameters stand at their defaults.
"""

from collections.abc import Iterator

from pipelines.rules import strategies
from trainyard.language.document import Document
from trainyard.validate.findings import Finding
from trainyard.validate.rules import (
    addresses,
    caching,
    channels,
    drivers,
    images,
    machines,
    metrics,
    network,
    retries,
    secrets,
    spot,
    storage,
    tags,
    tuning,
)
from trainyard.validate.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *machines.RULES,
    *images.RULES,
    *strategies.RULES,
    *network.RULES,
    *spot.RULES,
    *channels.RULES,
    *storage.RULES,
    *caching.RULES,
    *retries.RULES,
    *drivers.RULES,
    *tags.RULES,
    *tuning.RULES,
    *metrics.RULES,
    *addresses.RULES,
    *secrets.RULES,
)


def findings(document: Document) -> Iterator[Finding]:
    """Everything that the rules have to say of the document."""
    for rule in RULES:
        yield from rule.findings(document)
