"""The registry of rules, and the decorator ``rule``, which adds a rule to it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainyard.language.definition_document import Document, Step
from trainyard.validate.location import Finding

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One violation of a rule, at one path of the definition."""

    step: Step | None
    """Step that the path is in; None if it is outside steps."""

    path: str
    """JSON path in the definition."""

    problem: str
    fix: str | None = None
    """Change that solves it; None if the rule's ``fix`` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule about a problem that botocore's service model does not cover."""

    name: str
    """Name in kebab-case."""

    severity: Severity
    reason: str
    """Consequence of a violation."""

    fix: str
    source: str
    """Page of AWS's, issue (#n is in aws/sagemaker-python-sdk), or source file that shows it."""

    check: Callable[[Document], Iterator[Violation]]

    module: str
    """Module that declares the rule."""

    def iter_findings(self, document: Document) -> Iterator[Finding]:
        """Iterate over the findings of this rule in the document."""
        for broken in self.check(document):
            yield Finding(
                rule=self.name,
                severity=self.severity,
                step=broken.step.name if broken.step else None,
                path=broken.path,
                problem=broken.problem,
                why=self.reason,
                fix=broken.fix or self.fix,
                source=self.source,
            )


RULES: dict[str, Rule] = {}
"""Mapping of name to rule, in the order in which their modules were imported."""


def rule(
    severity: Severity,
    *,
    select: Callable[[Document], Iterable[Any]],
    reason: str,
    fix: str,
    source: str,
) -> Callable[[Callable[[Any], Iterator[Violation]]], Rule]:
    """Decorate a function to register it as a rule.

    ``select`` returns what the rule checks in a document, such as its steps or jobs. The function
    is called with each item, and yields the violations in it. Its name with hyphens is the name of
    the rule.

    Raises:
        ValueError: another rule has that name.
    """

    def make(find_violations: Callable[[Any], Iterator[Violation]]) -> Rule:
        """Register the decorated function as a rule; return the rule."""

        def check(document: Document) -> Iterator[Violation]:
            for thing in select(document):
                yield from find_violations(thing)

        name, module = find_violations.__name__.replace("_", "-"), find_violations.__module__
        if name in RULES:
            raise ValueError(f"{module}: {RULES[name].module} has a rule {name}, too; rename one")
        new_rule = Rule(
            name=name,
            severity=severity,
            reason=reason,
            fix=fix,
            source=source,
            check=check,
            module=module,
        )
        return RULES.setdefault(name, new_rule)

    return make


def select_document(document: Document) -> tuple[Document]:
    """Return the document itself as the only item, for a rule's ``select``."""
    return (document,)


def select_steps(document: Document) -> tuple[Step, ...]:
    """Return all steps, for a rule's ``select``."""
    return document.steps
