"""Steps of SDK v2 that got what runs, and the inputs of a training."""

import libcst as cst

from trainyard.migration.calls import CLASSES, METHODS, NO_SCRIPT, SESSION, STEPS, Rule
from trainyard.migration.estimators import Rewriting
from trainyard.migration.facts import DEFAULT_CHANNEL, code
from trainyard.migration.layout import Argument, NewCall, arguments_of

REPACKED = "SDK v2 packs the estimator's code into the model by a step of its own; v3 does not"


def inputs(to: Rewriting, original: cst.Call, text: str) -> str:
    """Return the argument of train() for that of fit(), which is already rewritten in itself."""
    value = next(
        (a.value for i, a in enumerate(original.args)
         if (a.keyword.value if a.keyword else ("inputs" if i == 0 else "")) == "inputs"),
        None,
    )  # fmt: skip
    by_name = to.facts.dicts.get(code(value)) if value is not None else None
    if value in to.facts.channels or by_name in to.facts.channels or text == "None":
        return text
    return f"[{_channel(to, value, text, DEFAULT_CHANNEL)}]"


def channels(to: Rewriting, original: cst.Dict, updated: cst.Dict) -> cst.BaseExpression:
    """Return a list of channels for a dictionary of them."""
    elements = []
    for was, now in zip(original.elements, updated.elements, strict=True):
        if not isinstance(was, cst.DictElement) or not isinstance(now, cst.DictElement):
            to.left(original, code(original), "its channels are not known from the script")
            return updated
        text = _channel(to, was.value, code(now.value), code(was.key))
        elements.append(cst.Element(cst.parse_expression(text), comma=now.comma))
    left = cst.LeftSquareBracket(updated.lbrace.whitespace_after)
    right = cst.RightSquareBracket(updated.rbrace.whitespace_before)
    return cst.List(elements, lbracket=left, rbracket=right)


def _channel(to: Rewriting, was: cst.BaseExpression | None, text: str, name: str) -> str:
    if was is not None and to.facts.class_of(was) == "TrainingInput":
        return text
    return f"{to.need('InputData')}(channel_name={name}, data_source={text})"


def step(to: Rewriting, name: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
    """Return a step with step_args, for one that got the object that runs."""
    found = arguments_of(updated, ["name", "step_args"])
    if name == "RegisterModel":
        return _registered(to, original, updated)
    holder, method, handed = STEPS[name]
    if found is None or holder not in found:
        if found is None or name == "CreateModelStep":
            to.left(original, code(original.func), "its arguments are not known from the script")
        return updated
    value = next(a.value for a in original.args if a.keyword and a.keyword.value == holder)
    kind = to.facts.kind_of(value)
    if not kind:
        to.left(original, f"{holder}={code(value)}", "it is not seen in the script what this is")
        return updated
    call = _call(to, original, updated, method, kind, found.pop(holder).code, handed)
    new = NewCall(to.need("ModelStep") if name == "CreateModelStep" else code(updated.func))
    for argument, one in found.items():
        if argument not in handed:
            new.put(argument, one)
        if argument == "name":
            new.put("step_args", Argument(call))
    return to.parsed(new, original)


def _call(to: Rewriting, original: cst.Call, updated: cst.Call, method: str, kind: str,
          receiver: str, handed: dict[str, str]) -> str:  # fmt: skip
    """Return the code of the method's call that gives the step's arguments."""
    found: dict[str, Argument] = {}
    for was, now in zip(original.args, updated.args, strict=True):
        key = was.keyword.value if was.keyword else ""
        if key not in handed:
            continue
        if kind == "transformer" or method == "create":
            _unfold(to, was.value, found, original)
        else:
            found[handed[key]] = Argument(code(now.value))
    rule = METHODS.get((kind, method))
    if rule is None:
        return _flat(f"{receiver}.{method}", found)
    if "inputs" in found and rule.name in ("train", "tune"):
        found["inputs"].code = inputs(to, original, found["inputs"].code)
    new = to.written(f"{receiver}.{rule.name}", rule, found, original)
    return code(to.parsed(new, original))


def _flat(name: str, found: dict[str, Argument]) -> str:
    return f"{name}({', '.join(f'{key}={one.code}' for key, one in found.items())})"


def _unfold(
    to: Rewriting, value: cst.BaseExpression, found: dict[str, Argument], original: cst.Call
) -> None:
    """Add the arguments of a TransformInput or CreateModelInput."""
    call = value if isinstance(value, cst.Call) else to.facts.assigned.get(code(value))
    order = ["data"] if to.facts.class_of(value) == "TransformInput" else ["instance_type"]
    inside = None if call is None else arguments_of(call, order)
    if inside is None:
        to.left(original, f"inputs={code(value)}", "its arguments are not known from the script")
        return
    found.update(inside)


_BUILDER = {"model_data": "s3_model_data_url", "image_uri": "image_uri"}


def _registered(to: Rewriting, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
    """Return a ModelStep that registers, for a RegisterModel."""
    found = arguments_of(updated, "name content_types response_types".split())
    estimator = next((a.value for a in original.args
                      if a.keyword and a.keyword.value == "estimator"), None)  # fmt: skip
    if found is None or ("model" not in found and estimator is None):
        to.left(original, "RegisterModel", "the model is not known from the script")
        return updated
    new = NewCall(to.need("ModelStep"), {"name": found.pop("name")})
    for key in ("display_name", "description", "depends_on"):
        if key in found:
            new.put(key, found.pop(key))
    if "register_model_step_retry_policies" in found:
        new.put("retry_policies", found.pop("register_model_step_retry_policies"))
    if "model" in found:
        receiver = found.pop("model").code
    else:
        assigned = to.facts.assigned.get(code(estimator)) if estimator is not None else None
        order = CLASSES["Estimator"].order
        own = arguments_of(assigned, order) if assigned is not None else None
        if own is None or "entry_point" in own:
            to.left(original, f"estimator={found['estimator'].code}", REPACKED)
            return updated
        receiver = _builder(to, found, found.pop("estimator").code)
    rule: Rule = METHODS["model", "register"]
    call = to.written(f"{receiver}.{rule.name}", rule, found, original)
    new.arguments = {"name": new.arguments["name"], "step_args": call, **new.arguments}
    return to.parsed(new, original)


def _builder(to: Rewriting, found: dict[str, Argument], estimator: str) -> str:
    own = {_BUILDER[key]: found.pop(key) for key in list(found) if key in _BUILDER}
    own.setdefault("image_uri", Argument(f"{estimator}.training_image"))
    own["role_arn"] = Argument(f"{estimator}.role")
    own[SESSION] = Argument(f"{estimator}.{SESSION}")
    own |= {place: Argument(value) for place, value in NO_SCRIPT.items()}
    return _flat(to.need("ModelBuilder"), own)
