"""The table of rules: each is a check with its reasons, and yields violations."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainyard.language.definition_document import Document, Step
from trainyard.validate.location import Finding

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A place where a rule is broken."""

    step: Step | None
    path: str
    """JSON path in the definition."""

    problem: str
    fix: str | None = None
    """Change to make here; None: the rule's own fix."""


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
    """AWS's page, an issue (#n is aws/sagemaker-python-sdk), or the file that decides."""

    check: Callable[[Document], Iterator[Violation]]

    module: str
    """Module that declares it."""

    def findings(self, document: Document) -> Iterator[Finding]:
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
"""Name → rule, in the order in which their modules were imported."""


def rule(
    severity: Severity,
    *,
    select: Callable[[Document], Iterable[Any]],
    reason: str,
    fix: str,
    source: str,
) -> Callable[[Callable[[Any], Iterator[Violation]]], Rule]:
    """Register a rule: a function that yields violations of one of the things that ``select``
    lists.

    The rule has the function's name, with hyphens; no other rule may have it.
    """

    def make(find_violations: Callable[[Any], Iterator[Violation]]) -> Rule:
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


def get_document(document: Document) -> tuple[Document]:
    """Return, for ``over``, the document itself, once."""
    return (document,)


def steps(document: Document) -> tuple[Step, ...]:
    """Return, for ``over``, each step."""
    return document.steps
