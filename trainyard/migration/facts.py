"""What a script of SDK v2 binds to its names, read before anything is rewritten."""

from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider, QualifiedNameSource

from trainyard.migration.calls import KINDS, STEPS
from trainyard.migration.names import IN_V3

_NAMED_ARGUMENTS = {"ProcessingInput": ("input", 2), "ProcessingOutput": ("output", 2)}
"""Class → the begin of the name that v2 generates, and the position of the argument with a name."""
DEFAULT_CHANNEL = '"training"'


def code(node: cst.CSTNode) -> str:
    """Return the node's source."""
    return cst.Module([]).code_for_node(node)


def is_v3(name: str) -> bool:
    """Return whether a name of the SDK is one of v3."""
    return name.startswith((*IN_V3, "sagemaker.serve.model_builder"))


def argument(call: cst.Call, name: str, position: int) -> cst.BaseExpression | None:
    """Return an argument's value."""
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
        if arg.keyword is None and not arg.star and index == position:
            return arg.value
    return None


class Facts(cst.CSTVisitor):
    """Reads which object a name stands for, and which channel an input belongs to."""

    def __init__(self, wrapper: MetadataWrapper) -> None:
        super().__init__()
        self._names = wrapper.resolve(QualifiedNameProvider)
        self.assignments: dict[str, cst.Call | None] = {}
        """Variable → the only call that it is assigned from; None if there are several."""
        self.kinds: set[str] = set()
        """Kinds of objects that the script makes."""
        self.classes: dict[str, set[str]] = {}
        """Variable → the classes of SDK v2 that it is an object of; an empty text for others."""
        self.variable: dict[cst.Call, str] = {}
        self.own_names: set[str] = set()
        """Names that the script itself assigns."""
        self.dicts: dict[str, cst.Dict] = {}
        self.channel: dict[cst.Call, str] = {}
        """TrainingInput → code of its channel's name."""
        self.channels: set[cst.Dict] = set()
        """Inputs of a training by channel."""
        self.name: dict[cst.Call, str] = {}
        """ProcessingInput or ProcessingOutput without a name → the one that v2 generates."""
        self.in_steps: set[str] = set()
        """Objects that a step gets itself, not what their method returned."""
        self._fits: list[cst.BaseExpression] = []

    def sdk_name(self, node: cst.CSTNode) -> str | None:
        """Return the full name of something of the SDK."""
        names: Any = self._names.get(node, ())
        for qualified_name in names() if callable(names) else names:
            is_import = qualified_name.source is QualifiedNameSource.IMPORT
            if is_import and qualified_name.name.split(".")[0] == "sagemaker":
                return qualified_name.name
        return None

    def sdk_class(self, node: cst.CSTNode) -> str:
        """Return the last part of the name of something of SDK v2, else an empty text."""
        name = self.sdk_name(node)
        return "" if name is None or is_v3(name) else name.rpartition(".")[2]

    def class_of(self, value: cst.BaseExpression) -> str:
        """Return the class of SDK v2 whose object an expression is, else an empty text."""
        if isinstance(value, cst.Call):
            return self.sdk_class(value.func)
        classes = self.classes.get(code(value), set())
        return min(classes) if len(classes) == 1 else ""

    def kind_of(self, value: cst.BaseExpression) -> str:
        return KINDS.get(self.class_of(value), "")

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._bind(code(target.target), node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._bind(code(node.target), node.value)

    def _bind(self, text: str, value: cst.BaseExpression) -> None:
        is_known = text in self.own_names
        self.own_names.add(text)
        cls = self.sdk_class(value.func) if isinstance(value, cst.Call) else ""
        self.classes.setdefault(text, set()).add(cls)
        if isinstance(value, cst.Call):
            self.kinds.add(KINDS.get(self.sdk_class(value.func), ""))
            self.assignments[text] = None if is_known else value
            self.variable[value] = text
        elif isinstance(value, cst.Dict):
            self.dicts[text] = value
        elif text in self.assignments:
            self.assignments[text] = None

    def visit_Call(self, node: cst.Call) -> None:
        name = self.sdk_class(node.func)
        if name in STEPS:
            holder = argument(node, STEPS[name][0], -1)
            if holder is not None:
                self.in_steps.add(code(holder))
                self._note_inputs(node, holder)
        if name == "RegisterModel":
            self.in_steps.update(code(a.value) for a in node.args if _is(a, "model"))
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "fit":
            self._note_inputs(node, node.func.value)

    def _note_inputs(self, node: cst.Call, holder: cst.BaseExpression) -> None:
        position = 0 if isinstance(node.func, cst.Attribute) else -1
        inputs = argument(node, "inputs", position)
        if inputs is not None and self.kind_of(holder) in ("trainer", "tuner"):
            self._fits.append(inputs)

    def visit_List(self, node: cst.List) -> None:
        for index, element in enumerate(node.elements, 1):
            call = element.value
            if not isinstance(call, cst.Call):
                continue
            prefix, position = _NAMED_ARGUMENTS.get(self.sdk_class(call.func), ("", 0))
            if prefix and argument(call, f"{prefix}_name", position) is None:
                self.name[call] = f'"{prefix}-{index}"'

    def leave_Module(self, original_node: cst.Module) -> None:
        for inputs in self._fits:
            by_channel = self.dicts.get(code(inputs), inputs)
            if isinstance(by_channel, cst.Dict):
                self.channels.add(by_channel)
                for element in by_channel.elements:
                    if isinstance(element, cst.DictElement):
                        self._note_channel(element.value, code(element.key))
            else:
                self._note_channel(inputs, DEFAULT_CHANNEL)

    def _note_channel(self, value: cst.BaseExpression, name: str) -> None:
        call = value if isinstance(value, cst.Call) else self.assignments.get(code(value))
        if call is not None and self.sdk_class(call.func) == "TrainingInput":
            self.channel[call] = name if self.channel.get(call, name) == name else ""


def _is(arg: cst.Arg, name: str) -> bool:
    return arg.keyword is not None and arg.keyword.value == name
