"""Secrets that stand in the definition themselves."""

from collections.abc import Iterator
from functools import reduce

from trainyard.language.document import Document
from trainyard.language.expressions import is_expression
from trainyard.secrets import Path, find
from trainyard.validate.rules.jobs import as_list, member
from trainyard.validate.rules.rule import Violation, rule, whole


@rule(
    "warning",
    over=whole,
    why="everyone who may describe the pipeline or the job reads it",
    fix="keep it in Secrets Manager, and read it in the job by its ARN",
    source="API reference, CreateTrainingJob: no security-sensitive information in Environment",
)
def secret_in_plain_text(document: Document) -> Iterator[Violation]:
    for step in document.steps:
        for path in find(_known(step.own_arguments, document)):
            where = _text(f"{step.path}.Arguments", path)
            yield Violation(step=step, path=where, problem="looks like a secret")
    parameters = as_list(document.document.get("Parameters"))
    for path in find(parameters):
        where = _text("$.Parameters", path)
        yield Violation(step=None, path=where, problem="looks like a secret")


def _known(value: object, document: Document) -> object:
    """``value`` with each expression's default in its place; what only a run knows, left out."""
    if is_expression(value):
        return document.value(value)
    if isinstance(value, dict):
        return {key: _known(item, document) for key, item in value.items()}
    return [_known(item, document) for item in value] if isinstance(value, list) else value


def _text(start: str, path: Path) -> str:
    return reduce(
        lambda so_far, key: f"{so_far}[{key}]" if isinstance(key, int) else member(so_far, key),
        path,
        start,
    )
