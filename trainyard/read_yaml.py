"""Read YAML from untrusted sources in bounded time and memory."""

from typing import Any

import yaml

LARGEST = 2**18
"""Largest number of characters of a file. The largest one here, infra/roles.yaml, has 20,000."""
DEEPEST = 100
"""Largest depth of nested lists and mappings, at each of which PyYAML recurses."""
MOST = 20_000
"""Largest number of values; those behind an alias count as often as it is used."""


class BoundedLoader(yaml.SafeLoader):
    """A SafeLoader that raises a YAMLError if a text is nested too deeply or its aliases expand to
    too many values.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node as PyYAML does, and raise a YAMLError if it exceeds a limit."""
        is_alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark
        self._depth += 1
        if self._depth > DEEPEST:
            raise _make_error(f"is nested deeper than {DEEPEST}", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        # A node gets its size when all of it is composed, so an alias to a node without a size is
        # inside that node.
        if is_alias and node not in self._sizes:
            raise _make_error("an alias is inside the value that it refers to", mark)
        size = self._sizes[node] = 1 + sum(self._sizes[child] for child in _list_children(node))
        if size > MOST:
            raise _make_error(f"has more than {MOST:,} values with its aliases expanded", mark)
        return node


def _make_error(reason: str, mark: yaml.Mark) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, reason, mark)


def _list_children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def load_yaml(text: str, loader: type[BoundedLoader] = BoundedLoader) -> Any:
    """Parse a YAML text.

    Raises:
        yaml.YAMLError: the text is not YAML, is too large or too deep, or has an invalid value.
    """
    if len(text) > LARGEST:
        raise yaml.YAMLError(f"has {len(text):,} characters; at most {LARGEST:,} are allowed")
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 (a SafeLoader)
    # Raised for an invalid date, or for a number with thousands of digits.
    except ValueError as error:
        raise yaml.YAMLError(str(error)) from None
