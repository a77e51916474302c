"""The text of a rewritten call: on one line where it fits, else an argument a line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from trainyard.migration.facts import code

WIDTH = 96
STEP = "    "


@dataclass(slots=True)
class Argument:
    """An argument of a call: its code, and the comments around it."""

    code: str
    before: list[str] = field(default_factory=list)
    after: str = ""
    below: list[str] = field(default_factory=list)
    """Comments between the last argument and the end of the call."""


@dataclass(slots=True)
class NewCall:
    """A call that is being written: arguments by name, some of which are such calls themselves."""

    name: str
    arguments: "dict[str, Argument | NewCall]" = field(default_factory=dict)

    def put(self, place: str, argument: Argument) -> None:
        """Put an argument at a place, such as ``compute:Compute.instance_type``."""
        first, _, rest = place.partition(".")
        name, _, cls = first.partition(":")
        if not cls:
            self.arguments[name] = argument
            return
        holder = self.arguments.setdefault(name, NewCall(cls))
        if isinstance(holder, NewCall):
            holder.put(rest, argument)

    def holds(self, place: str) -> bool:
        first, _, rest = place.partition(".")
        argument = self.arguments.get(first.partition(":")[0])
        return (
            argument.holds(rest) if isinstance(argument, NewCall) and rest else argument is not None
        )

    def classes(self) -> Iterator[str]:
        """Iterate over the classes that the call's arguments need."""
        for item in self.arguments.values():
            if isinstance(item, NewCall):
                yield item.name
                yield from item.classes()

    def text(self, indent: str, column: int = 0) -> str:
        """Return the call's code; ``indent`` is that of its line, ``column`` where it begins."""
        flat = ", ".join(f"{name}={_flat(item)}" for name, item in self.arguments.items())
        line = f"{self.name}({flat})"
        plain = "\n" not in line and not any(_comments(item) for item in self.arguments.values())
        if plain and max(column, len(indent)) + len(line) <= WIDTH:
            return line
        inner, lines = indent + STEP, [f"{self.name}("]
        for name, item in self.arguments.items():
            if isinstance(item, NewCall):
                lines.append(f"{inner}{name}={item.text(inner, len(inner) + len(name) + 1)},")
                continue
            lines += [f"{inner}{comment}" for comment in item.before]
            lines.append(f"{inner}{name}={item.code}," + (f"  {item.after}" if item.after else ""))
            lines += [f"{inner}{comment}" for comment in item.below]
        return "\n".join([*lines, f"{indent})"])


def _flat(item: "Argument | NewCall") -> str:
    if isinstance(item, Argument):
        return item.code
    inside = ", ".join(f"{name}={_flat(argument)}" for name, argument in item.arguments.items())
    return f"{item.name}({inside})"


def _comments(item: "Argument | NewCall") -> bool:
    if isinstance(item, Argument):
        return bool(item.before or item.after or item.below)
    return any(_comments(argument) for argument in item.arguments.values())


def arguments_of(call: cst.Call, order: Sequence[str]) -> dict[str, Argument] | None:
    """Return the arguments by name; None if one is unpacked from a list or a dictionary."""
    arguments: dict[str, Argument] = {}
    before, _ = _comments_in(call.whitespace_before_args)
    for index, arg in enumerate(call.args):
        is_positional = arg.keyword is None
        if arg.star or (is_positional and index >= len(order)):
            return None
        name = order[index] if arg.keyword is None else arg.keyword.value
        space = arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else None
        following, after = _comments_in(space or arg.whitespace_after_arg)
        arguments[name] = Argument(code(arg.value), before, after)
        before = following
        if index == len(call.args) - 1:
            arguments[name].below = following
    return arguments


def _comments_in(space: cst.BaseParenthesizableWhitespace) -> tuple[list[str], str]:
    """Return the comments on lines of their own, and the one at the end of the line."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return [], ""
    lines = [line.comment.value for line in space.empty_lines if line.comment]
    return lines, space.first_line.comment.value if space.first_line.comment else ""
