"""The calls of SDK v2 that no table can describe: images of frameworks, inputs, steps."""

import posixpath
from typing import Protocol

import libcst as cst

from trainyard.migration.calls import CLASSES, ESTIMATOR, METHODS, NO_SCRIPT, SESSION, STEPS, Rule
from trainyard.migration.facts import DEFAULT_CHANNEL, Facts, as_mapping, code
from trainyard.migration.layout import Given, Made, given
from trainyard.migration.names import FRAMEWORKS


class Rewriting(Protocol):
    """What the rewriting of a script offers to the functions here."""

    facts: Facts

    def left(
        self, node: cst.CSTNode, what: str, reason: str, *, harmless: bool = False
    ) -> None: ...

    def need(self, name: str) -> str: ...

    def parsed(self, made: Made, original: cst.CSTNode) -> cst.BaseExpression: ...

    def made(self, name: str, rule: Rule, found: dict[str, Given], original: cst.Call) -> Made: ...


DRIVER = (
    "SDK v3 starts the script by a driver of its own, SDK v2 by the toolkit of the image: compare "
    "what the script is given"
)
REPACKED = "SDK v2 packs the estimator's code into the model by a step of its own; v3 does not"


# constructors


def before(to: Rewriting, name: str, found: dict[str, Given], original: cst.Call) -> str:
    """Change the arguments of a constructor; return the code of calls that follow it."""
    if name in FRAMEWORKS:
        _image(to, FRAMEWORKS[name], found, original)
        _distribution(to, found, original)
    if name == "SKLearnProcessor":
        found["image_uri"] = Given(_retrieve(to, "sklearn", found, scope=""))
        del found["framework_version"]
    if name == "FrameworkProcessor" and "estimator_cls" in found:
        cls = found.pop("estimator_cls").code.rpartition(".")[2]
        if cls in FRAMEWORKS:
            _image(to, FRAMEWORKS[cls], found, original, named="image_uri")
        else:
            to.left(original, f"estimator_cls={cls}", "its image is not known")
    if name != "Estimator" and name not in FRAMEWORKS:
        return ""
    _source(to, found, original)
    if "output_path" not in found:
        session = found[SESSION].code if SESSION in found else f"{to.need('Session')}()"
        found["output_path"] = Given(f'f"s3://{{{session}.default_bucket()}}/"')
    if "hyperparameters" in found and name == "Estimator":
        found["hyperparameters"].code = _texts(found["hyperparameters"].code)
    if "tags" in found:
        _tags(to, found, original)
    return _metrics(to, found, original)


def _image(
    to: Rewriting,
    framework: str,
    found: dict[str, Given],
    original: cst.Call,
    named: str = "image_uri",
) -> None:
    """Put the framework's image in place of its version."""
    versions = {key: found[key] for key in ("framework_version", "py_version") if key in found}
    others = [key for key in ("transformers_version", "pytorch_version", "tensorflow_version",
                              "compiler_config") if key in found]  # fmt: skip
    if named not in found and others:
        reason = "find the image by image_uris.retrieve(base_framework_version=…)"
        for key in others:
            to.left(original, f"{key}={found.pop(key).code}", reason)
    if named not in found:
        found[named] = Given(_retrieve(to, framework, found, scope="training"))
    for key in versions:
        found.pop(key, None)


def _retrieve(to: Rewriting, framework: str, found: dict[str, Given], *, scope: str) -> str:
    session = found[SESSION].code if SESSION in found else f"{to.need('Session')}()"
    module = to.need("image_uris")
    parts = [f'"{framework}"', f"region={session}.boto_region_name"]
    for key, name in (("framework_version", "version"), ("py_version", "py_version"),
                      ("instance_type", "instance_type")):  # fmt: skip
        if key in found:
            parts.append(f"{name}={found[key].code}")
    if scope and framework not in ("sklearn", "xgboost"):
        parts.append(f'image_scope="{scope}"')
    return f"{module}.retrieve({', '.join(parts)})"


def _source(to: Rewriting, found: dict[str, Given], original: cst.Call) -> None:
    entry = found.get("entry_point")
    if entry is None:
        return
    to.left(original, f"entry_point={entry.code}", DRIVER)
    if "source_dir" in found:
        return
    value = cst.parse_expression(entry.code)
    if not isinstance(value, cst.SimpleString):
        to.left(original, f"entry_point={entry.code}", "SDK v3 wants the folder, too: source_dir")
        return
    folder, name = posixpath.split(str(value.evaluated_value))
    entry.code, found["source_dir"] = f'"{name}"', Given(f'"{folder or "."}"')


def _distribution(to: Rewriting, found: dict[str, Given], original: cst.Call) -> None:
    asked = found.pop("distribution", None)
    if asked is None or asked.code == "None":
        return
    bare = "".join(asked.code.split()).replace("'", '"').replace(",}", "}")
    known = {
        '{"torch_distributed":{"enabled":True}}': "Torchrun",
        '{"pytorchddp":{"enabled":True}}': "Torchrun",
        '{"mpi":{"enabled":True}}': "MPI",
    }
    if bare in known:
        ESTIMATOR.setdefault("distributed", "distributed")
        found["distributed"] = Given(f"{to.need(known[bare])}()", asked.before, asked.after)
    else:
        reason = "SDK v3 has Torchrun and MPI (sagemaker.train.distributed): choose one"
        to.left(original, f"distribution={asked.code}", reason)


def _texts(text: str) -> str:
    """Return hyperparameters with truths as SDK v2 writes them into the request."""
    node = cst.parse_expression(text)
    if not isinstance(node, cst.Dict):
        return text
    elements = [
        element.with_changes(value=cst.parse_expression(_text(code(element.value))))
        if isinstance(element, cst.DictElement)
        else element
        for element in node.elements
    ]
    return code(node.with_changes(elements=elements))


def _text(value: str) -> str:
    return f'"{value}"' if value in ("True", "False", "None") else value


def _tags(to: Rewriting, found: dict[str, Given], original: cst.Call) -> None:
    tags = found["tags"]
    try:
        pairs = [as_mapping(one) for one in _items(tags.code)]
        made = [f"key={code(one['Key'])}, value={code(one['Value'])}" for one in pairs]
    except (KeyError, ValueError):
        to.left(
            original, f"tags={found.pop('tags').code}", "SDK v3 wants a list of Tag(key, value)"
        )
        return
    tags.code = "[" + ", ".join(f"{to.need('Tag')}({one})" for one in made) + "]"


def _metrics(to: Rewriting, found: dict[str, Given], original: cst.Call) -> str:
    metrics = found.pop("metric_definitions", None)
    if metrics is None or metrics.code == "None":
        return ""
    try:
        pairs = [as_mapping(one) for one in _items(metrics.code)]
        made = [f"name={code(one['Name'])}, regex={code(one['Regex'])}" for one in pairs]
    except (KeyError, ValueError):
        reason = "SDK v3 wants .with_metric_definitions([MetricDefinition(name, regex)])"
        to.left(original, f"metric_definitions={metrics.code}", reason)
        return ""
    items = ", ".join(f"{to.need('MetricDefinition')}({one})" for one in made)
    return f".with_metric_definitions([{items}])"


def _items(text: str) -> list[cst.BaseExpression]:
    node = cst.parse_expression(text)
    if not isinstance(node, cst.List):
        raise ValueError
    return [element.value for element in node.elements]


def set_hyperparameters(to: Rewriting, receiver: str, call: cst.Call) -> cst.BaseExpression:
    """Return an update of the trainer's hyperparameters."""
    if any(arg.star == "**" for arg in call.args):
        parts = [f"**{code(a.value)}" if a.star else _pair(a) for a in call.args]
        return cst.parse_expression(f"{receiver}.hyperparameters.update({{{', '.join(parts)}}})")
    lines = "".join(f"\n    {_pair(arg)}," for arg in call.args)
    return cst.parse_expression(f"{receiver}.hyperparameters.update({{{lines}\n}})")


def _pair(arg: cst.Arg) -> str:
    name = arg.keyword.value if arg.keyword else ""
    return f'"{name}": {_text(code(arg.value))}'


# inputs of a training


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


# steps


def step(to: Rewriting, name: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
    """Return a step with step_args, for one that got the object that runs."""
    found = given(updated, ["name", "step_args"])
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
    made = Made(to.need("ModelStep") if name == "CreateModelStep" else code(updated.func))
    for argument, one in found.items():
        if argument not in handed:
            made.put(argument, one)
        if argument == "name":
            made.put("step_args", Given(call))
    return to.parsed(made, original)


def _call(to: Rewriting, original: cst.Call, updated: cst.Call, method: str, kind: str,
          receiver: str, handed: dict[str, str]) -> str:  # fmt: skip
    """Return the code of the method's call that gives the step's arguments."""
    found: dict[str, Given] = {}
    for was, now in zip(original.args, updated.args, strict=True):
        key = was.keyword.value if was.keyword else ""
        if key not in handed:
            continue
        if kind == "transformer" or method == "create":
            _unfold(to, was.value, found, original)
        else:
            found[handed[key]] = Given(code(now.value))
    rule = METHODS.get((kind, method))
    if rule is None:
        return _flat(f"{receiver}.{method}", found)
    if "inputs" in found and rule.name in ("train", "tune"):
        found["inputs"].code = inputs(to, original, found["inputs"].code)
    made = to.made(f"{receiver}.{rule.name}", rule, found, original)
    return code(to.parsed(made, original))


def _flat(name: str, found: dict[str, Given]) -> str:
    return f"{name}({', '.join(f'{key}={one.code}' for key, one in found.items())})"


def _unfold(
    to: Rewriting, value: cst.BaseExpression, found: dict[str, Given], original: cst.Call
) -> None:
    """Add the arguments of a TransformInput or CreateModelInput."""
    call = value if isinstance(value, cst.Call) else to.facts.made.get(code(value))
    order = ["data"] if to.facts.class_of(value) == "TransformInput" else ["instance_type"]
    inside = None if call is None else given(call, order)
    if inside is None:
        to.left(original, f"inputs={code(value)}", "its arguments are not known from the script")
        return
    found.update(inside)


_BUILDER = {"model_data": "s3_model_data_url", "image_uri": "image_uri"}


def _registered(to: Rewriting, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
    """Return a ModelStep that registers, for a RegisterModel."""
    found = given(updated, "name content_types response_types".split())
    estimator = next((a.value for a in original.args
                      if a.keyword and a.keyword.value == "estimator"), None)  # fmt: skip
    if found is None or ("model" not in found and estimator is None):
        to.left(original, "RegisterModel", "the model is not known from the script")
        return updated
    made = Made(to.need("ModelStep"), {"name": found.pop("name")})
    for key in ("display_name", "description", "depends_on"):
        if key in found:
            made.put(key, found.pop(key))
    if "register_model_step_retry_policies" in found:
        made.put("retry_policies", found.pop("register_model_step_retry_policies"))
    if "model" in found:
        receiver = found.pop("model").code
    else:
        made_from = to.facts.made.get(code(estimator)) if estimator is not None else None
        order = CLASSES["Estimator"].order
        own = given(made_from, order) if made_from is not None else None
        if own is None or "entry_point" in own:
            to.left(original, f"estimator={found['estimator'].code}", REPACKED)
            return updated
        receiver = _builder(to, found, found.pop("estimator").code)
    rule: Rule = METHODS["model", "register"]
    call = to.made(f"{receiver}.{rule.name}", rule, found, original)
    made.arguments = {"name": made.arguments["name"], "step_args": call, **made.arguments}
    return to.parsed(made, original)


def _builder(to: Rewriting, found: dict[str, Given], estimator: str) -> str:
    own = {_BUILDER[key]: found.pop(key) for key in list(found) if key in _BUILDER}
    own.setdefault("image_uri", Given(f"{estimator}.training_image"))
    own["role_arn"] = Given(f"{estimator}.role")
    own[SESSION] = Given(f"{estimator}.{SESSION}")
    own |= {place: Given(value) for place, value in NO_SCRIPT.items()}
    return _flat(to.need("ModelBuilder"), own)
