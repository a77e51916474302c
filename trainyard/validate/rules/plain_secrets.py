"""Find secrets that are in the definition as plain text."""

from collections.abc import Iterator
from functools import reduce

from trainyard.language.definition_document import Document
from trainyard.secrets import Path, iter_secret_paths
from trainyard.validate.rules.job_view import as_list, join_member
from trainyard.validate.rules.rule import Violation, rule, select_document


@rule(
    "warning",
    select=select_document,
    reason="everyone who may describe the pipeline or the job can read it",
    fix="keep it in Secrets Manager, and read it in the job by its ARN",
    source="API reference, CreateTrainingJob: no security-sensitive information in Environment",
)
def secret_in_plain_text(document: Document) -> Iterator[Violation]:
    for step in document.steps:
        for path in iter_secret_paths(document.resolve_value(step.own_arguments)):
            field = _format_json_path(f"{step.path}.Arguments", path)
            yield Violation(step=step, path=field, problem="looks like a secret")
    parameters = as_list(document.document.get("Parameters"))
    for path in iter_secret_paths(parameters):
        field = _format_json_path("$.Parameters", path)
        yield Violation(step=None, path=field, problem="looks like a secret")


def _format_json_path(start: str, path: Path) -> str:
    """Return ``path`` as a JSON path that begins with ``start``."""
    return reduce(
        lambda so_far, key: (
            f"{so_far}[{key}]" if isinstance(key, int) else join_member(so_far, key)
        ),
        path,
        start,
    )
