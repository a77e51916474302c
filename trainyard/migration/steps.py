"""Rewrite the pipeline steps of SDK v2, and the inputs of training jobs, for SDK v3.

A step of v2 gets the object that runs, such as an estimator; a step of v3 gets ``step_args``, the
result of calling the object's method. In all functions here, ``script`` is the rewriting of the
script, which reports what cannot be migrated; ``original`` is the node in the old script, and
``updated_call`` or ``updated_dict`` the same node with its inner parts already rewritten.
"""

import libcst as cst

from trainyard.migration.calls import CLASSES, METHODS, NO_SCRIPT, SESSION, STEPS, Rule
from trainyard.migration.estimators import Argument, NewCall, Rewriting, parse_arguments
from trainyard.migration.facts import DEFAULT_CHANNEL, render_code

REPACKED_REASON = "SDK v2 packs the estimator's code into the model in a separate step; v3 does not"


def render_inputs(script: Rewriting, original: cst.Call, text: str) -> str:
    """Return the code of the argument ``inputs`` of v3's train(), given that of v2's fit().

    ``text`` is the code of fit()'s argument, in which calls are already rewritten.
    """
    value = next(
        (a.value for i, a in enumerate(original.args)
         if (a.keyword.value if a.keyword else ("inputs" if i == 0 else "")) == "inputs"),
        None,
    )  # fmt: skip
    by_name = script.facts.dicts.get(render_code(value)) if value is not None else None
    if value in script.facts.channels or by_name in script.facts.channels or text == "None":
        return text
    return f"[{_render_channel(script, value, text, DEFAULT_CHANNEL)}]"


def rewrite_channels(
    script: Rewriting, original: cst.Dict, updated_dict: cst.Dict
) -> cst.BaseExpression:
    """Rewrite a dictionary of channels as a list of InputData."""
    elements = []
    for was, now in zip(original.elements, updated_dict.elements, strict=True):
        if not isinstance(was, cst.DictElement) or not isinstance(now, cst.DictElement):
            script.report_unmigrated(
                original, render_code(original), "its channels are not known from the script"
            )
            return updated_dict
        text = _render_channel(script, was.value, render_code(now.value), render_code(was.key))
        elements.append(cst.Element(cst.parse_expression(text), comma=now.comma))
    left_bracket = cst.LeftSquareBracket(updated_dict.lbrace.whitespace_after)
    right = cst.RightSquareBracket(updated_dict.rbrace.whitespace_before)
    return cst.List(elements, lbracket=left_bracket, rbracket=right)


def _render_channel(script: Rewriting, was: cst.BaseExpression | None, text: str, name: str) -> str:
    """Return the code of a channel; ``was`` is its value in the old script, ``text`` the rewritten
    code of that value.
    """
    if was is not None and script.facts.infer_class(was) == "TrainingInput":
        return text
    return f"{script.require_import('InputData')}(channel_name={name}, data_source={text})"


def rewrite_step(
    script: Rewriting, name: str, original: cst.Call, updated_call: cst.Call
) -> cst.BaseExpression:
    """Rewrite a step to get ``step_args`` instead of the object that runs, such as an estimator.

    Return the call unchanged, and report it if needed, if its arguments are not known.
    """
    call_arguments = parse_arguments(updated_call, ["name", "step_args"])
    if name == "RegisterModel":
        return _rewrite_register(script, original, updated_call)
    holder, method, argument_names = STEPS[name]
    if call_arguments is None or holder not in call_arguments:
        if call_arguments is None or name == "CreateModelStep":
            script.report_unmigrated(
                original, render_code(original.func), "its arguments are not known from the script"
            )
        return updated_call
    value = next(a.value for a in original.args if a.keyword and a.keyword.value == holder)
    kind = script.facts.infer_kind(value)
    if not kind:
        script.report_unmigrated(
            original, f"{holder}={render_code(value)}", "the script does not show what this is"
        )
        return updated_call
    call = _render_method_call(
        script,
        original,
        updated_call,
        method,
        kind,
        call_arguments.pop(holder).code,
        argument_names,
    )
    new = NewCall(
        script.require_import("ModelStep")
        if name == "CreateModelStep"
        else render_code(updated_call.func)
    )
    for argument, entry in call_arguments.items():
        if argument not in argument_names:
            new.add_argument(argument, entry)
        if argument == "name":
            new.add_argument("step_args", Argument(call))
    return script.build_call_node(new, original)


def _render_method_call(
    script: Rewriting,
    original: cst.Call,
    updated_call: cst.Call,
    method: str,
    kind: str,
    receiver: str,
    argument_names: dict[str, str],
) -> str:
    """Return the code of the method call whose result is the step's ``step_args``."""
    call_arguments: dict[str, Argument] = {}
    for was, now in zip(original.args, updated_call.args, strict=True):
        key = was.keyword.value if was.keyword else ""
        if key not in argument_names:
            continue
        if kind == "transformer" or method == "create":
            _unfold_input(script, was.value, call_arguments, original)
        else:
            call_arguments[argument_names[key]] = Argument(render_code(now.value))
    rule = METHODS.get((kind, method))
    if rule is None:
        return _render_flat_call(f"{receiver}.{method}", call_arguments)
    if "inputs" in call_arguments and rule.name in ("train", "tune"):
        call_arguments["inputs"].code = render_inputs(
            script, original, call_arguments["inputs"].code
        )
    new = script.translate_call(f"{receiver}.{rule.name}", rule, call_arguments, original)
    return render_code(script.build_call_node(new, original))


def _render_flat_call(name: str, call_arguments: dict[str, Argument]) -> str:
    """Return the code of a call on one line."""
    return (
        f"{name}({', '.join(f'{key}={argument.code}' for key, argument in call_arguments.items())})"
    )


def _unfold_input(
    script: Rewriting,
    value: cst.BaseExpression,
    call_arguments: dict[str, Argument],
    original: cst.Call,
) -> None:
    """Add the arguments of ``value``, a TransformInput or CreateModelInput, to ``call_arguments``;
    report the value if its arguments are not known.
    """
    call = (
        value if isinstance(value, cst.Call) else script.facts.assignments.get(render_code(value))
    )
    order = ["data"] if script.facts.infer_class(value) == "TransformInput" else ["instance_type"]
    inside = None if call is None else parse_arguments(call, order)
    if inside is None:
        script.report_unmigrated(
            original, f"inputs={render_code(value)}", "its arguments are not known from the script"
        )
        return
    call_arguments.update(inside)


_BUILDER = {"model_data": "s3_model_data_url", "image_uri": "image_uri"}


def _rewrite_register(
    script: Rewriting, original: cst.Call, updated_call: cst.Call
) -> cst.BaseExpression:
    """Rewrite a RegisterModel step as a ModelStep that registers the model.

    Report the step and return it unchanged if the model is not known, or needs repacking.
    """
    call_arguments = parse_arguments(updated_call, "name content_types response_types".split())
    estimator = next((a.value for a in original.args
                      if a.keyword and a.keyword.value == "estimator"), None)  # fmt: skip
    if call_arguments is None or ("model" not in call_arguments and estimator is None):
        script.report_unmigrated(
            original, "RegisterModel", "the model is not known from the script"
        )
        return updated_call
    new = NewCall(script.require_import("ModelStep"), {"name": call_arguments.pop("name")})
    for key in ("display_name", "description", "depends_on"):
        if key in call_arguments:
            new.add_argument(key, call_arguments.pop(key))
    if "register_model_step_retry_policies" in call_arguments:
        new.add_argument("retry_policies", call_arguments.pop("register_model_step_retry_policies"))
    if "model" in call_arguments:
        receiver = call_arguments.pop("model").code
    else:
        assignment = (
            script.facts.assignments.get(render_code(estimator)) if estimator is not None else None
        )
        order = CLASSES["Estimator"].order
        estimator_arguments = parse_arguments(assignment, order) if assignment is not None else None
        if estimator_arguments is None or "entry_point" in estimator_arguments:
            script.report_unmigrated(
                original, f"estimator={call_arguments['estimator'].code}", REPACKED_REASON
            )
            return updated_call
        receiver = _render_model_builder(
            script, call_arguments, call_arguments.pop("estimator").code
        )
    rule: Rule = METHODS["model", "register"]
    call = script.translate_call(f"{receiver}.{rule.name}", rule, call_arguments, original)
    new.arguments = {"name": new.arguments["name"], "step_args": call, **new.arguments}
    return script.build_call_node(new, original)


def _render_model_builder(
    script: Rewriting, call_arguments: dict[str, Argument], estimator: str
) -> str:
    """Return the code of a ModelBuilder for an estimator's model, taking its arguments out of
    ``call_arguments``.
    """
    builder_arguments = {
        _BUILDER[key]: call_arguments.pop(key) for key in list(call_arguments) if key in _BUILDER
    }
    builder_arguments.setdefault("image_uri", Argument(f"{estimator}.training_image"))
    builder_arguments["role_arn"] = Argument(f"{estimator}.role")
    builder_arguments[SESSION] = Argument(f"{estimator}.{SESSION}")
    builder_arguments |= {path: Argument(value) for path, value in NO_SCRIPT.items()}
    return _render_flat_call(script.require_import("ModelBuilder"), builder_arguments)
