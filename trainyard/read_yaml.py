"""Read YAML from untrusted sources in bounded time and memory."""

from typing import Any

import yaml

LARGEST = 2**18
"""Characters of a file, at most; the largest here, infra/roles.yaml, has 20,000."""
DEEPEST = 100
"""Largest depth of nested lists and mappings; PyYAML recurses at each."""
MOST = 20_000
"""Largest number of values, each alias counted as often as it is used."""


class BoundedLoader(yaml.SafeLoader):
    """A SafeLoader that stops if a text is too deep, or its aliases expand too far."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        is_alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark
        self._depth += 1
        if self._depth > DEEPEST:
            raise _make_error(f"is nested deeper than {DEEPEST}", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        # A node gets its size when it is composed to its end.
        if is_alias and node not in self._sizes:
            raise _make_error("an alias stands inside what it names", mark)
        size = self._sizes[node] = 1 + sum(self._sizes[child] for child in _children(node))
        if size > MOST:
            raise _make_error(f"has more than {MOST:,} values with its aliases expanded", mark)
        return node


def _make_error(reason: str, mark: yaml.Mark) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, reason, mark)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def load_yaml(text: str, loader: type[BoundedLoader] = BoundedLoader) -> Any:
    """Parse YAML.

    Raises:
        yaml.YAMLError: it is not YAML, too large or too deep, or a value in it cannot be built.
    """
    if len(text) > LARGEST:
        raise yaml.YAMLError(f"has {len(text):,} characters, {LARGEST:,} are read at most")
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 (a SafeLoader)
    # An invalid date, or a number with thousands of digits.
    except ValueError as error:
        raise yaml.YAMLError(str(error)) from None
