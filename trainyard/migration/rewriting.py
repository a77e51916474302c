"""Rewrite a script from SageMaker SDK v2 to v3, and report by line what has no counterpart.

"v2" and "v3" are these two versions of the SDK.
"""

from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import CodePosition, MetadataWrapper, ParentNodeProvider, PositionProvider

from trainyard.common.errors import DefinitionError
from trainyard.migration import estimators, steps
from trainyard.migration.calls import (
    ATTRIBUTES,
    CLASSES,
    GONE,
    INPUT_DATA,
    INPUT_DATA_HOLDS,
    KINDS,
    METHODS,
    SESSION,
    STEPS,
    Rule,
)
from trainyard.migration.estimators import Argument, NewCall, parse_arguments
from trainyard.migration.facts import (
    ABSENT,
    MODULES,
    NO_COUNTERPART,
    PLACES,
    Facts,
    Imports,
    is_v3,
    render_code,
)

RUNTIME = "the function runs in a runtime that each SDK uploads: run it once under SDK v3"
CHECK_LIMIT = "SDK v3 ends the check's job after 86,400 s: set max_runtime_in_seconds in both"
_CLASS_ARGUMENTS = {"estimator_cls", "predictor_cls"}
"""Arguments whose value is a class of SDK v2, and which do not exist in SDK v3."""
_REPLACED_STEPS = {"CreateModelStep", "RegisterModel"}


@dataclass(frozen=True, slots=True, order=True)
class UnmigratedCode:
    """Code that could not be migrated: its line in the old script, the code, and the reason."""

    line: int
    construct: str
    reason: str


@dataclass(frozen=True, slots=True)
class Migration:
    """A script that was migrated to SDK v3."""

    code: str
    """The new script."""

    remaining: tuple[UnmigratedCode, ...]
    """Code that could not be migrated, and must be changed by hand."""

    without_loss: tuple[UnmigratedCode, ...]
    """Arguments that were left out because SDK v3 does what they say anyway."""


def migrate_script(source: str) -> Migration:
    """Rewrite a script for SDK v3. Code that cannot be migrated stays as it is, and is listed.

    Raises:
        DefinitionError: it is not Python.
    """
    try:
        wrapper = MetadataWrapper(cst.parse_module(source))
    except cst.ParserSyntaxError as wrong:
        raise DefinitionError(_format_syntax_error(source, wrong)) from None
    facts = Facts(wrapper)
    wrapper.module.visit(facts)
    rewriting = Rewriting(facts, source)
    new_module = wrapper.visit(rewriting)
    imports = Imports(wrapper.module, new_module, rewriting.needed_names)
    new_module = new_module.visit(imports)
    lines = {
        name: line for name, line in rewriting.import_lines.items() if name in imports.kept_names
    }
    import_remains = [
        UnmigratedCode(line, f"import of {name}", explain_absence(name))
        for name, line in lines.items()
    ]
    remaining = sorted({*rewriting.remaining, *import_remains})
    return Migration(new_module.code, tuple(remaining), tuple(sorted(set(rewriting.without_loss))))


def _format_syntax_error(source: str, wrong: cst.ParserSyntaxError) -> str:
    """Return Python's own message and line for a syntax error that libcst found."""
    # libcst's message says what its grammar expected, and has line 1 for errors of its tokenizer.
    try:
        compile(source, "script", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        text = (getattr(error, "text", None) or "").strip()
        detail = f": {text}" if text else ""
        return f"line {line}: {getattr(error, 'msg', error)}{detail}" if line else str(error)
    return f"line {wrong.raw_line}: {wrong.message}"


def explain_absence(name: str) -> str:
    """Return why a name of SDK v2 does not exist in SDK v3."""
    return ABSENT.get(name.rpartition(".")[2], NO_COUNTERPART)


def _is_moved(full: str) -> bool:
    """Return whether a full name of v2, or a prefix of it, has a known counterpart in v3."""
    parts = full.split(".")
    prefixes = (".".join(parts[:n]) for n in range(2, len(parts) + 1))
    return any(p in MODULES or p.rpartition(".")[2] in PLACES for p in prefixes)


class Rewriting(cst.CSTTransformer):
    """Rewrites the syntax tree of a script; collects the code that could not be migrated, and the
    imports that the new script needs.
    """

    METADATA_DEPENDENCIES = (PositionProvider, ParentNodeProvider)

    def __init__(self, facts: Facts, source: str) -> None:
        super().__init__()
        self.facts, self._lines = facts, source.splitlines()
        self.remaining: list[UnmigratedCode] = []
        self.without_loss: list[UnmigratedCode] = []
        self.needed_names: dict[str, str] = {}
        """Mapping of a name of v3 to the name under which the new script imports it."""
        self.import_lines: dict[str, int] = {}
        """Mapping of the full name of an import of v2 to its line."""

    # Methods that are also used by the modules ``steps`` and ``estimators``.

    def report_unmigrated(
        self, node: cst.CSTNode, construct: str, reason: str, *, harmless: bool = False
    ) -> None:
        """Report code that could not be migrated; if ``harmless``, an argument without effect."""
        line = self._find_start(node).line
        (self.without_loss if harmless else self.remaining).append(
            UnmigratedCode(line, construct, reason)
        )

    def _find_start(self, node: cst.CSTNode) -> CodePosition:
        """Return the position in the old script at which a node begins."""
        code_range: Any = self.get_metadata(PositionProvider, node)
        return code_range.start

    def require_import(self, name: str) -> str:
        """Add a name of v3 to the new script's imports; return the name to use for it.

        It gets the prefix ``sagemaker_`` if the script uses the name for something else.
        """
        is_taken = name in self.facts.own_names
        return self.needed_names.setdefault(name, f"sagemaker_{name}" if is_taken else name)

    def build_call_node(self, new: NewCall, original: cst.CSTNode) -> cst.BaseExpression:
        """Return a new call as a syntax node, formatted for the position of the original.

        Also note that the new script must import the classes that are called in its arguments.
        """
        for name in new.iter_classes():
            self.require_import(name)
        start = self._find_start(original)
        line = self._lines[start.line - 1]
        indent = line[: len(line) - len(line.lstrip())]
        return cst.parse_expression(new.to_code(indent, start.column))

    # Rewriting of calls.

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Rewrite a call of v2 by the tables; report calls of unknown objects that may be v2's."""
        name = self.facts.find_v2_name(original_node.func)
        if name in STEPS or name in _REPLACED_STEPS:
            return steps.rewrite_step(self, name, original_node, updated_node)
        if name in CLASSES:
            return self._rewrite_constructor(name, original_node, updated_node)
        if name == "CheckJobConfig" and "max_runtime_in_seconds" not in render_code(original_node):
            self.report_unmigrated(original_node, render_code(original_node.func), CHECK_LIMIT)
        if name in KINDS and self.facts.variable.get(original_node) in self.facts.in_steps:
            return self._set_pipeline_session(original_node, updated_node)
        func = original_node.func
        if isinstance(func, cst.Attribute) and isinstance(updated_node.func, cst.Attribute):
            kind, method = self.facts.infer_kind(func.value), func.attr.value
            receiver = render_code(updated_node.func.value)
            if kind == "trainer" and method == "set_hyperparameters":
                return estimators.rewrite_set_hyperparameters(
                    self, receiver, original_node, updated_node
                )
            if kind == "trainer" and method == "hyperparameters":
                return updated_node.func
            if rule := METHODS.get((kind, method)):
                return self.rewrite_method(rule, receiver, original_node, updated_node)
            if self._may_be_estimator(func):
                self.report_unmigrated(
                    original_node, render_code(func), "the script does not show what object this is"
                )
        return updated_node

    def _may_be_estimator(self, func: cst.Attribute) -> bool:
        """Return whether a method may belong to an estimator that is created outside the script,
        or in several places of it.
        """
        text = render_code(func.value)
        is_known = self.facts.assignments.get(text, func) is not None and not text.startswith(
            "self."
        )
        is_training = func.attr.value in ("fit", "set_hyperparameters")
        return (
            is_training
            and "trainer" in self.facts.kinds
            and not is_known
            and not self.facts.infer_class(func.value)
        )

    def rewrite_method(
        self, rule: Rule, receiver: str, original: cst.Call, updated_call: cst.Call
    ) -> cst.BaseExpression:
        """Return a call of v3's method, or the original if its arguments are not known."""
        call_arguments = self.require_arguments(rule, original, updated_call)
        if call_arguments is None:
            return updated_call
        new = self.translate_call(f"{receiver}.{rule.name}", rule, call_arguments, original)
        return self.build_call_node(new, original)

    def require_arguments(
        self, rule: Rule, original: cst.Call, updated_call: cst.Call
    ) -> dict[str, Argument] | None:
        """Return a mapping of names to the arguments of a call; report the call and return None if
        they are not known from the script.
        """
        call_arguments = parse_arguments(updated_call, rule.order)
        if call_arguments is None:
            why_not = "the arguments are unpacked from a variable, or there are too many"
            self.report_unmigrated(original, render_code(original.func), why_not)
            return None
        if rule.name in ("train", "tune") and "inputs" in call_arguments:
            call_arguments["inputs"].code = steps.render_inputs(
                self, original, call_arguments["inputs"].code
            )
        return call_arguments

    def translate_call(
        self, name: str, rule: Rule, call_arguments: dict[str, Argument], original: cst.Call
    ) -> NewCall:
        """Return v3's call ``name`` with the arguments that v3 has; report the others."""
        new = NewCall(name)
        for argument, value in call_arguments.items():
            argument_text = f"{argument}={value.code}"
            if argument in rule.lost:
                self.report_unmigrated(original, argument_text, rule.lost[argument], harmless=True)
            elif value.code in rule.spent.get(argument, ()):
                self.report_unmigrated(
                    original, argument_text, "the default in SDK v3", harmless=True
                )
            elif argument in rule.paths or argument in rule.order or argument in rule.same:
                new.add_argument(rule.paths.get(argument, argument), value)
            else:
                self.report_unmigrated(original, argument_text, GONE)
        for path, value in rule.defaults.items():
            if not new.has_argument(path):
                new.add_argument(path, Argument(value))
        return new

    def _rewrite_constructor(
        self, name: str, original: cst.Call, updated_call: cst.Call
    ) -> cst.BaseExpression:
        """Rewrite the call of a v2 constructor by its rule in ``calls.CLASSES``."""
        rule = CLASSES[name]
        call_arguments = self.require_arguments(rule, original, updated_call)
        if call_arguments is None:
            return updated_call
        if name == "TrainingInput" and call_arguments.keys() <= INPUT_DATA_HOLDS:
            rule = INPUT_DATA
        if self.facts.variable.get(original) in self.facts.in_steps:
            call_arguments[SESSION] = self._make_pipeline_session(call_arguments.get(SESSION))
        estimators.adapt_constructor_arguments(self, name, call_arguments, original)
        cls = (
            render_code(updated_call.func) if rule.name == name else self.require_import(rule.name)
        )
        new = self.translate_call(cls, rule, call_arguments, original)
        if name == "TrainingInput":
            channel = self.facts.channel.get(original)
            if not channel:
                self.report_unmigrated(
                    original, render_code(original), "its channel is not known from the script"
                )
                return updated_call
            new.arguments = {"channel_name": Argument(channel), **new.arguments}
        if original in self.facts.name:
            key = "input_name" if name == "ProcessingInput" else "output_name"
            new.arguments = {key: Argument(self.facts.name[original]), **new.arguments}
        elif name.startswith("Processing") and not new.arguments.keys() & {
            "input_name", "output_name"
        }:  # fmt: skip
            self.report_unmigrated(
                original, render_code(original), "SDK v3 needs a name; v2's depends on its position"
            )
        return self.build_call_node(new, original)

    def _set_pipeline_session(
        self, original: cst.Call, updated_call: cst.Call
    ) -> cst.BaseExpression:
        """Return a constructor with its session replaced by a PipelineSession, which steps need."""
        call_arguments = parse_arguments(updated_call, ())
        if call_arguments is None:
            self.report_unmigrated(
                original, render_code(original.func), "pass its arguments by name"
            )
            return updated_call
        call_arguments[SESSION] = self._make_pipeline_session(call_arguments.get(SESSION))
        return self.build_call_node(
            NewCall(render_code(updated_call.func), {**call_arguments}), original
        )

    def _make_pipeline_session(self, session: Argument | None) -> Argument:
        """Return the session itself if it is a PipelineSession, else one created from it."""
        assignment = self.facts.assignments.get(session.code) if session else None
        if (
            session
            and assignment
            and self.facts.find_v2_name(assignment.func).endswith("PipelineSession")
        ):
            return session
        cls = self.require_import("PipelineSession")
        if session is None or session.code == "None":
            return Argument(f"{cls}()")
        s = session.code
        return Argument(
            f"{cls}(boto_session={s}.boto_session, default_bucket={s}.default_bucket())",
            session.before,
            session.after,
        )

    # Rewriting of dictionaries of channels, attributes and names.

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.BaseExpression:
        """Rewrite a dictionary of training channels; leave any other as it is."""
        if original_node not in self.facts.channels:
            return updated_node
        return steps.rewrite_channels(self, original_node, updated_node)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Replace a dotted name of v2 by v3's name, or report it if v3 has none."""
        full = self.facts.find_sdk_name(original_node)
        if full is None:
            return self._rewrite_attribute(original_node, updated_node)
        if is_v3(full) or self._is_in_import(original_node):
            return updated_node
        if full in MODULES:
            return cst.Name(self.require_import(MODULES[full].rpartition(".")[2]))
        if full == "sagemaker.__version__":
            return cst.parse_expression(f'{self.require_import("version")}("sagemaker")')
        last = full.rpartition(".")[2]
        if last in PLACES and not _is_moved(full.rpartition(".")[0]):
            return cst.Name(self.require_import(last))
        outer = self.get_metadata(ParentNodeProvider, original_node)
        if not _is_moved(full) and not isinstance(outer, cst.Attribute):
            self._report_unmoved(original_node, full)
        return updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        """Report a name of v2 that has no counterpart; the node itself is unchanged."""
        full = self.facts.find_sdk_name(original_node)
        outer = self.get_metadata(ParentNodeProvider, original_node)
        is_known = full is None or is_v3(full) or "." not in full or _is_moved(full)
        bare = not isinstance(outer, cst.Attribute) and not self._is_in_import(original_node)
        if not is_known and bare:
            self._report_unmoved(original_node, str(full))
        return updated_node

    def _report_unmoved(self, node: cst.CSTNode, full: str) -> None:
        """Report a name of v2 that has no counterpart, unless another method handles it."""
        last = full.rpartition(".")[2]
        outer = self.get_metadata(ParentNodeProvider, node)
        if (
            isinstance(outer, cst.Call)
            and outer.func is node
            and last in (*CLASSES, *_REPLACED_STEPS)
        ):
            return
        if isinstance(outer, cst.Arg) and outer.keyword and outer.keyword.value in _CLASS_ARGUMENTS:
            return
        if last[:1].isupper() or last not in ("sagemaker",):
            self.report_unmigrated(node, render_code(node), explain_absence(full))

    def _rewrite_attribute(
        self, original: cst.Attribute, updated_attribute: cst.Attribute
    ) -> cst.BaseExpression:
        """Return v3's name of an attribute of a trainer or a model; report one that has none."""
        kind, name = self.facts.infer_kind(original.value), original.attr.value
        outer = self.get_metadata(ParentNodeProvider, original)
        is_call = isinstance(outer, cst.Call) and outer.func is original
        if kind not in ATTRIBUTES or (is_call and (kind, name) in METHODS):
            return updated_attribute
        if is_call and name in ("set_hyperparameters", "hyperparameters"):
            return updated_attribute
        if name not in ATTRIBUTES[kind]:
            new = "ModelTrainer" if kind == "trainer" else "ModelBuilder"
            self.report_unmigrated(original, render_code(original), f"SDK v3's {new} has no {name}")
            return updated_attribute
        return cst.parse_expression(
            f"{render_code(updated_attribute.value)}.{ATTRIBUTES[kind][name]}"
        )

    def _is_in_import(self, node: cst.CSTNode) -> bool:
        outer = self.get_metadata(ParentNodeProvider, node, None)
        while isinstance(outer, cst.Attribute | cst.ImportAlias | cst.AsName):
            outer = self.get_metadata(ParentNodeProvider, outer, None)
        return isinstance(outer, cst.Import | cst.ImportFrom)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        """Record the lines of imported names; report star imports and ``step`` of v2."""
        module = render_code(node.module) if node.module else ""
        if isinstance(node.names, cst.ImportStar):
            if module.split(".")[0] == "sagemaker" and not is_v3(module):
                self.report_unmigrated(
                    node, render_code(node), "import the names explicitly instead of with *"
                )
            return
        for alias in node.names:
            name = f"{module}.{render_code(alias.name)}"
            self.import_lines[name] = self._find_start(node).line
            if name == "sagemaker.workflow.function_step.step":
                self.report_unmigrated(node, f"import of {name}", RUNTIME)
