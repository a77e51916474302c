"""Rewrite what the tables cannot describe in estimators and processors of SDK v2: images, scripts,
tags; and format the rewritten calls.

In the functions here, ``rewriting`` is the rewriting of the script, which reports what cannot be
migrated, and ``call_arguments`` are the arguments of the call, which they change in place.
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import libcst as cst

from trainyard.migration.calls import SESSION, Rule
from trainyard.migration.facts import FRAMEWORKS, Facts, render_code

# Format a rewritten call: on one line if it fits, else with one argument per line.

WIDTH = 96
STEP = "    "


@dataclass(slots=True)
class Argument:
    """An argument of a call: its code, and the comments around it."""

    code: str
    before: list[str] = field(default_factory=list)
    """Comments on the lines before it."""
    after: str = ""
    """Comment at the end of its line."""
    below: list[str] = field(default_factory=list)
    """Comments between the last argument and the end of the call."""


@dataclass(slots=True)
class NewCall:
    """A call under construction; its named arguments are code, or calls of the same class."""

    name: str
    arguments: "dict[str, Argument | NewCall]" = field(default_factory=dict)

    def add_argument(self, path: str, argument: Argument) -> None:
        """Add an argument at a path such as ``compute:Compute.instance_type``; create the outer
        calls (here ``compute=Compute(…)``) if they do not exist.
        """
        first, _, rest = path.partition(".")
        name, _, cls = first.partition(":")
        if not cls:
            self.arguments[name] = argument
            return
        holder = self.arguments.setdefault(name, NewCall(cls))
        if isinstance(holder, NewCall):
            holder.add_argument(rest, argument)

    def has_argument(self, path: str) -> bool:
        """Return whether there is an argument at ``path``."""
        first, _, rest = path.partition(".")
        argument = self.arguments.get(first.partition(":")[0])
        return (
            argument.has_argument(rest)
            if isinstance(argument, NewCall) and rest
            else argument is not None
        )

    def iter_classes(self) -> Iterator[str]:
        """Iterate over the names of the classes that are called in the arguments, at any depth."""
        for item in self.arguments.values():
            if isinstance(item, NewCall):
                yield item.name
                yield from item.iter_classes()

    def to_code(self, indent: str, column: int = 0) -> str:
        """Return the code of the call.

        ``indent`` is the indentation of its line, ``column`` the position where the call begins.
        """
        flat = ", ".join(f"{name}={_render_flat(item)}" for name, item in self.arguments.items())
        line = f"{self.name}({flat})"
        plain = "\n" not in line and not any(
            _has_comments(item) for item in self.arguments.values()
        )
        if plain and max(column, len(indent)) + len(line) <= WIDTH:
            return line
        inner, lines = indent + STEP, [f"{self.name}("]
        for name, item in self.arguments.items():
            if isinstance(item, NewCall):
                lines.append(f"{inner}{name}={item.to_code(inner, len(inner) + len(name) + 1)},")
                continue
            lines += [f"{inner}{comment}" for comment in item.before]
            lines.append(f"{inner}{name}={item.code}," + (f"  {item.after}" if item.after else ""))
            lines += [f"{inner}{comment}" for comment in item.below]
        return "\n".join([*lines, f"{indent})"])


def _render_flat(item: "Argument | NewCall") -> str:
    """Return the code of an argument on one line."""
    if isinstance(item, Argument):
        return item.code
    inside = ", ".join(
        f"{name}={_render_flat(argument)}" for name, argument in item.arguments.items()
    )
    return f"{item.name}({inside})"


def _has_comments(item: "Argument | NewCall") -> bool:
    """Return whether an argument has comments."""
    if isinstance(item, Argument):
        return bool(item.before or item.after or item.below)
    return any(_has_comments(argument) for argument in item.arguments.values())


def parse_arguments(call: cst.Call, order: Sequence[str]) -> dict[str, Argument] | None:
    """Return a mapping of names to the arguments of a call.

    Return None if an argument is unpacked from a list or dictionary, or if there are more
    positional arguments than names in ``order``.
    """
    arguments: dict[str, Argument] = {}
    before, _ = _parse_comments(call.whitespace_before_args)
    for index, arg in enumerate(call.args):
        is_positional = arg.keyword is None
        if arg.star or (is_positional and index >= len(order)):
            return None
        name = order[index] if arg.keyword is None else arg.keyword.value
        space = arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else None
        following, after = _parse_comments(space or arg.whitespace_after_arg)
        arguments[name] = Argument(render_code(arg.value), before, after)
        before = following
        if index == len(call.args) - 1:
            arguments[name].below = following
    return arguments


def _parse_comments(space: cst.BaseParenthesizableWhitespace) -> tuple[list[str], str]:
    """Return (comments on separate lines, comment at the end of the first line) in whitespace."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return [], ""
    lines = [line.comment.value for line in space.empty_lines if line.comment]
    return lines, space.first_line.comment.value if space.first_line.comment else ""


DRIVER = (
    "SDK v3 starts the script with its own driver, SDK v2 with the image's toolkit: compare the "
    "arguments and environment that the script receives"
)
_NUMBERS = {"ParameterBoolean", "ParameterFloat", "ParameterInteger"}
BY_HAND = {
    "tags": "SDK v3 expects a list of Tag(key, value)",
    "metric_definitions": "SDK v3 needs .with_metric_definitions([MetricDefinition(name, regex)])",
    "distribution": "SDK v3 has Torchrun and MPI (sagemaker.train.distributed): choose one",
}


class Rewriting(Protocol):
    """The methods of ``rewriting.Rewriting`` that the functions here use."""

    facts: Facts

    def report_unmigrated(
        self, node: cst.CSTNode, construct: str, reason: str, *, harmless: bool = False
    ) -> None: ...

    def require_import(self, name: str) -> str: ...

    def build_call_node(self, new: NewCall, original: cst.CSTNode) -> cst.BaseExpression: ...

    def translate_call(
        self, name: str, rule: Rule, call_arguments: dict[str, Argument], original: cst.Call
    ) -> NewCall: ...


def adapt_constructor_arguments(
    rewriting: Rewriting, name: str, call_arguments: dict[str, Argument], original: cst.Call
) -> None:
    """Change the arguments of v2's constructor ``name`` before its rule is applied."""
    if name in FRAMEWORKS:
        _rewrite_image(rewriting, FRAMEWORKS[name], call_arguments, original)
    if name == "SKLearnProcessor":
        call_arguments["image_uri"] = Argument(
            _render_image_call(rewriting, "sklearn", call_arguments, scope="")
        )
        del call_arguments["framework_version"]
    if name == "FrameworkProcessor" and "estimator_cls" in call_arguments:
        cls = call_arguments.pop("estimator_cls").code.rpartition(".")[2]
        if cls in FRAMEWORKS:
            _rewrite_image(
                rewriting, FRAMEWORKS[cls], call_arguments, original, image_argument="image_uri"
            )
        else:
            rewriting.report_unmigrated(original, f"estimator_cls={cls}", "its image is not known")
    if name == "WarmStartConfig":
        _rewrite_parents(rewriting, call_arguments, original)
    if name != "Estimator" and name not in FRAMEWORKS:
        return
    _add_source_dir(rewriting, call_arguments, original)
    if "output_path" not in call_arguments:
        session = (
            call_arguments[SESSION].code
            if SESSION in call_arguments
            else f"{rewriting.require_import('Session')}()"
        )
        call_arguments["output_path"] = Argument(f'f"s3://{{{session}.default_bucket()}}/"')
    if "hyperparameters" in call_arguments and name == "Estimator":
        call_arguments["hyperparameters"].code = _stringify_values(
            rewriting, call_arguments["hyperparameters"].code
        )
    for key in call_arguments.keys() & BY_HAND.keys():
        rewriting.report_unmigrated(original, f"{key}={call_arguments.pop(key).code}", BY_HAND[key])


def _rewrite_parents(
    rewriting: Rewriting, call_arguments: dict[str, Argument], original: cst.Call
) -> None:
    """Rewrite the argument ``parents`` of a WarmStartConfig as v3's shapes."""
    jobs = cst.parse_expression(call_arguments["parents"].code)
    if not isinstance(jobs, cst.Set | cst.List):
        rewriting.report_unmigrated(
            original,
            f"parents={call_arguments.pop('parents').code}",
            "the parent jobs cannot be determined from the script",
        )
        return
    cls = rewriting.require_import("ParentHyperParameterTuningJob")
    parents = [
        f"{cls}(hyper_parameter_tuning_job_name={render_code(e.value)})" for e in jobs.elements
    ]
    call_arguments["parents"].code = f"[{', '.join(parents)}]"
    call_arguments["warm_start_type"].code += ".value"


def _rewrite_image(
    rewriting: Rewriting,
    framework: str,
    call_arguments: dict[str, Argument],
    original: cst.Call,
    image_argument: str = "image_uri",
) -> None:
    """Replace the framework's version by the argument ``image_argument`` with its image."""
    versions = {
        key: call_arguments[key]
        for key in ("framework_version", "py_version")
        if key in call_arguments
    }
    others = [key for key in ("transformers_version", "pytorch_version", "tensorflow_version",
                              "compiler_config") if key in call_arguments]  # fmt: skip
    if image_argument not in call_arguments and others:
        reason = "find the image by image_uris.retrieve(base_framework_version=…)"
        for key in others:
            rewriting.report_unmigrated(original, f"{key}={call_arguments.pop(key).code}", reason)
    if image_argument not in call_arguments:
        call_arguments[image_argument] = Argument(
            _render_image_call(rewriting, framework, call_arguments, scope="training")
        )
    for key in versions:
        call_arguments.pop(key, None)


def _render_image_call(
    rewriting: Rewriting, framework: str, call_arguments: dict[str, Argument], *, scope: str
) -> str:
    """Return the code of a call of image_uris.retrieve that returns a framework's image."""
    session = (
        call_arguments[SESSION].code
        if SESSION in call_arguments
        else f"{rewriting.require_import('Session')}()"
    )
    module = rewriting.require_import("image_uris")
    parts = [f'"{framework}"', f"region={session}.boto_region_name"]
    for key, name in (("framework_version", "version"), ("py_version", "py_version"),
                      ("instance_type", "instance_type")):  # fmt: skip
        if key in call_arguments:
            parts.append(f"{name}={call_arguments[key].code}")
    if scope and framework not in ("sklearn", "xgboost"):
        parts.append(f'image_scope="{scope}"')
    return f"{module}.retrieve({', '.join(parts)})"


def _add_source_dir(
    rewriting: Rewriting, call_arguments: dict[str, Argument], original: cst.Call
) -> None:
    """Add ``source_dir``, which v3 needs, from the folder of ``entry_point``; report that v3 starts
    the script differently.
    """
    entry = call_arguments.get("entry_point")
    if entry is None:
        return
    rewriting.report_unmigrated(original, f"entry_point={entry.code}", DRIVER)
    if "source_dir" in call_arguments:
        return
    value = cst.parse_expression(entry.code)
    if not isinstance(value, cst.SimpleString):
        rewriting.report_unmigrated(
            original, f"entry_point={entry.code}", "SDK v3 also needs the folder: add source_dir"
        )
        return
    folder, name = posixpath.split(str(value.evaluated_value))
    entry.code, call_arguments["source_dir"] = f'"{name}"', Argument(f'"{folder or "."}"')


def _stringify_values(rewriting: Rewriting, text: str) -> str:
    """Return the code of hyperparameters with booleans, None and numeric pipeline parameters as
    strings, as SDK v2 writes them into the request.
    """
    node = cst.parse_expression(text)
    if not isinstance(node, cst.Dict):
        return text
    elements = [
        element.with_changes(
            value=cst.parse_expression(_stringify_value(rewriting, render_code(element.value)))
        )
        if isinstance(element, cst.DictElement)
        else element
        for element in node.elements
    ]
    return render_code(node.with_changes(elements=elements))


def _stringify_value(rewriting: Rewriting, value: str) -> str:
    """Return the code of one hyperparameter's value, as in ``_stringify_values``."""
    if rewriting.facts.infer_class(cst.parse_expression(value)) in _NUMBERS:
        return f"{value}.to_string()"
    return f'"{value}"' if value in ("True", "False", "None") else value


def rewrite_set_hyperparameters(
    rewriting: Rewriting, receiver: str, original: cst.Call, call: cst.Call
) -> cst.BaseExpression:
    """Rewrite a call of set_hyperparameters as an update of the trainer's hyperparameters."""
    call_arguments = parse_arguments(call, ())
    if call_arguments is None:
        parts = [
            f'"{a.keyword.value}": {_stringify_value(rewriting, render_code(a.value))}'
            if a.keyword
            else f"**{render_code(a.value)}"
            for a in call.args
        ]
        return cst.parse_expression(f"{receiver}.hyperparameters.update({{{', '.join(parts)}}})")
    new = NewCall(f"{receiver}.hyperparameters.update")
    for name, argument in call_arguments.items():
        argument.code = _stringify_value(rewriting, argument.code)
        new.add_argument(name, argument)
    return rewriting.build_call_node(new, original)
