"""Change definitions so that they do something else, or the same, and ask ``trainyard equal``.

A difference is one edit that matters, after up to two rewrites that do not; a rewrite is one to
three edits that keep the meaning. Both are drawn by seed, on three pipelines that really run.
"""

import copy
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.trainyard.emulator.harness import (
    channel,
    compare,
    condition_step,
    fail_step,
    json_get,
    pipeline,
    process_step,
    s3_input,
    train_step,
)
from trainyard.equality.observed_run import Setting
from trainyard.equality.static_comparison import EqualityResult, decide_equality
from trainyard.language.definition_document import iter_steps
from trainyard.validate import check_definition

Document = dict[str, Any]
Edit = Callable[[Document, random.Random], bool]
"""Edits a definition in place; False if it has no place for it."""
BUCKET = "s3://bkt"
PREP = "cp /opt/ml/processing/data/* /opt/ml/processing/out/; echo 7 > /opt/ml/processing/more/m"
REPORT = """printf '{"acc": 0.9, "loss": 0.9}' > /opt/ml/processing/eval/r.json"""
RETRY = [
    {"ExceptionType": ["Step.THROTTLING"], "IntervalSeconds": 1, "MaxAttempts": 2},
    {"ExceptionType": ["SageMaker.JOB_INTERNAL_ERROR"], "IntervalSeconds": 2, "MaxAttempts": 3},
]


def get(text: str) -> Document:
    return {"Get": text}


def output_of(step: str, name: str) -> Document:
    return get(f"Steps.{step}.ProcessingOutputConfig.Outputs['{name}'].S3Output.S3Uri")


def join(on: str, *values: Any) -> Document:
    return {"Std:Join": {"On": on, "Values": list(values)}}


def _parameter(name: str, default: Any, kind: str = "String", **more: Any) -> Document:
    return {"Name": name, "Type": kind, "DefaultValue": default, **more}


def _prep(**more: Any) -> Document:
    inputs = [s3_input("data", f"{BUCKET}/data/a"), s3_input("code", f"{BUCKET}/code/v1/run.py")]
    outputs = {"out": f"{BUCKET}/prep/out", "more": f"{BUCKET}/prep/more"}
    arguments = {"ProcessingInputs": inputs, "Environment": {"MODE": get("Parameters.Mode")}}
    return process_step("Prep", PREP, outputs=outputs, arguments=arguments, **more)


def _train(name: str = "Train", **more: Any) -> Document:
    arguments = {
        "InputDataConfig": [
            channel("train", output_of("Prep", "out")),
            channel("more", output_of("Prep", "more")),
        ],
        "HyperParameters": {
            "lr": join("", get("Parameters.Rate")),
            "depth": "3",
            "sagemaker_submit_directory": f'"{BUCKET}/code/v1/sourcedir.tar.gz"',
        },
        "Environment": {"TITLE": join("-", "run", "of", get("Parameters.Mode"))},
    }
    return train_step(name, "cat /opt/ml/input/data/*/* > /opt/ml/model/m", arguments=arguments,
                      RetryPolicies=copy.deepcopy(RETRY), **more)  # fmt: skip


def _evaluate(waits: tuple = ()) -> Document:
    uri = join("/", BUCKET + "/eval", get("Execution.PipelineExecutionId"))
    model = s3_input("model", get("Steps.Train.ModelArtifacts.S3ModelArtifacts"))
    return process_step(
        "Evaluate", REPORT, waits, outputs={"eval": uri}, arguments={"ProcessingInputs": [model]},
        PropertyFiles=[{"PropertyFileName": "R", "OutputName": "eval", "FilePath": "r.json"}],
        CacheConfig={"Enabled": True, "ExpireAfter": "P30D"},
    )  # fmt: skip


def _gate(then: list, other: list) -> Document:
    checks = [
        compare("GreaterThan", json_get("Evaluate", "R", "acc"), 0.5),
        compare("GreaterThanOrEqualTo", json_get("Evaluate", "R", "loss"), 0.1),
    ]
    return condition_step("Gate", checks, then, other)


def pipelines() -> list[Document]:
    """Return three definitions: a chain, one with branches, one whose steps run side by side."""
    declared = [
        _parameter("Mode", "fast", EnumValues=["fast", "slow"]),
        _parameter("Rate", 0.1, "Float"),
    ]
    good, bad = process_step("Good", "true"), fail_step("Bad", join(" ", "too", "low"))
    audit = process_step("Audit", "true", ("Prep",))
    notice = process_step("Notice", "echo done", ("Audit",))
    publish = process_step("Publish", "echo out", ("Good",))
    return [
        pipeline(copy.deepcopy(steps), Parameters=copy.deepcopy(declared))
        for steps in (
            [_prep(), _train()],
            [_prep(), _train(), _evaluate(), _gate([good], [bad])],
            [_prep(), audit, notice, _train(), _evaluate(("Audit",)), _gate([good, publish], [])],
        )
    ]


# what both find in S3


def write_input_files(folder: Path) -> dict[str, Path]:
    """Write the files of both sides; return URI → file."""
    found = {}

    def put(key: str, data: bytes) -> None:
        path = folder / key.replace("/", "-")
        path.write_bytes(data)
        found[f"{BUCKET}/{key}"] = path

    put("data/a/a.csv", b"1,2\n")
    put("data/b/a.csv", b"1,3\n")
    for version, text in (("v1", b"print(1)"), ("v2", b"print(1)"), ("v3", b"print(3)")):
        put(f"code/{version}/run.py", text)
    put("code/v4/main.py", b"print(1)")
    archives = {"v1": (0, 0o644, b"x"), "v2": (99, 0o644, b"x"), "v3": (0, 0o644, b"y")}
    for version, (time, mode, text) in (archives | {"v4": (0, 0o755, b"x")}).items():
        put(f"code/{version}/sourcedir.tar.gz", _archive(folder, time, mode, text))
    return found


def _archive(folder: Path, time: int, mode: int, text: bytes) -> bytes:
    with tarfile.open(folder / "archive", "w:gz") as tar:
        member = tarfile.TarInfo("train.py")
        member.mtime, member.mode, member.size = time, mode, len(text)
        tar.addfile(member, io.BytesIO(text))
    return (folder / "archive").read_bytes()


# edits


def find_steps(document: Document) -> dict[str, Document]:
    """Return every step by its name."""
    return {step.name: step.document for step in iter_steps(document["Steps"])}  # type: ignore[misc]


def holders(document: Document) -> Iterator[list]:
    """Iterate over the lists that hold steps."""
    yield document["Steps"]
    for step in find_steps(document).values():
        for branch in ("IfSteps", "ElseSteps"):
            if branch in step["Arguments"]:
                yield step["Arguments"][branch]


def replace_text(document: Document, old: str, new: str) -> bool:
    """Replace a text in the whole JSON document."""
    text = json.dumps(document)
    document |= json.loads(text.replace(old, new))
    return old in text


def setting(step: str, *path: Any, to: Any) -> Edit:
    """Return an edit that sets one member of a step; ``to`` may compute it from what was there."""

    def edit(document: Document, chance: random.Random) -> bool:
        holder: Any = find_steps(document).get(step)
        for key in path[:-1] if holder is not None else ():
            holder = holder[key]
        if holder is None:
            return False
        is_list = isinstance(holder, list)
        before = holder[path[-1]] if is_list else holder.get(path[-1])
        after = to(before) if callable(to) else to
        if after is None:
            holder.pop(path[-1], None)
        else:
            holder[path[-1]] = after
        return after != before or type(after) is not type(before)

    return edit


def _text(old: str, new: str) -> Edit:
    return lambda document, chance: replace_text(document, old, new)


_SHELL = ("Arguments", "AppSpecification", "ContainerArguments", 0)
_INPUTS = ("Arguments", "ProcessingInputs")
_CHANNELS = ("Arguments", "InputDataConfig")
_CLUSTER = ("Arguments", "ProcessingResources", "ClusterConfig")
_OUTPUTS = ("Arguments", "ProcessingOutputConfig", "Outputs")
_CHECKS = ("Arguments", "Conditions")


def _make_exchange_edit(one: str, other: str) -> Edit:
    """Return an edit by which two steps do each other's work."""

    def edit(document: Document, chance: random.Random) -> bool:
        pair = [step for name, step in find_steps(document).items() if name in (one, other)]
        arguments = [step["Arguments"] for step in pair]
        for step, others in zip(pair, arguments[::-1], strict=True):
            step["Arguments"] = others
        return len(pair) == 2

    return edit


def _branches(document: Document, chance: random.Random) -> bool:
    gate = find_steps(document).get("Gate", {}).get("Arguments", {})
    if gate:
        gate["IfSteps"], gate["ElseSteps"] = gate["ElseSteps"], gate["IfSteps"]
    return bool(gate)


def _parameter_becomes(edit: Callable[[Document], Any], name: str = "Mode") -> Edit:
    def edit_parameter(document: Document, chance: random.Random) -> bool:
        entries = [entry for entry in document["Parameters"] if entry["Name"] == name]
        for entry in entries:
            edit(entry)
        return bool(entries)

    return edit_parameter


def _without_last(document: Document, chance: random.Random) -> bool:
    holder = [steps for steps in holders(document) if steps][-1]
    if len(list(iter_steps(document["Steps"]))) < 3:
        return False
    holder.pop()
    return True


def _out_of_branch(document: Document, chance: random.Random) -> bool:
    gate = find_steps(document).get("Gate")
    if gate:
        document["Steps"].append(gate["Arguments"]["IfSteps"].pop())
    return bool(gate)


def _other_default_of_a_removed_one(document: Document, chance: random.Random) -> bool:
    return replace_text(document, '{"Get": "Parameters.Mode"}', '"slow"') and _remove_parameter(
        document
    )


def _remove_parameter(document: Document, name: str = "Mode") -> bool:
    document["Parameters"] = [e for e in document["Parameters"] if e["Name"] != name]
    return True


DIFFERENCES: dict[str, Edit] = {
    "image": setting("Prep", "Arguments", "AppSpecification", "ImageUri",
                     to=lambda uri: uri.replace("2.6.0", "2.7.0")),
    "environment's key": setting("Train", "Arguments", "Environment", "title", to="x"),
    "separator of a join": setting("Train", "Arguments", "Environment", "TITLE", "Std:Join", "On",
                                   to="_"),
    "hyperparameter left out": setting("Train", "Arguments", "HyperParameters", "depth", to=None),
    "input sharded": setting("Prep", *_INPUTS, 0, "S3Input", "S3DataDistributionType",
                             to="ShardedByS3Key"),
    "input left out": setting("Train", *_CHANNELS, to=lambda channels: channels[:1]),
    "reference to another output": _text("Outputs['more']", "Outputs['out']"),
    "order of conditions": setting("Gate", *_CHECKS, to=lambda checks: checks[::-1]),
    "comparison operator": setting("Gate", *_CHECKS, 0, "Type", to="LessThan"),
    "sides of a comparison": setting("Gate", *_CHECKS, 0, to=lambda c: c | {
        "LeftValue": c["RightValue"], "RightValue": c["LeftValue"]}),
    "condition left out": setting("Gate", *_CHECKS, to=lambda checks: checks[:1]),
    "path of a JsonGet": _text('"Path": "acc"', '"Path": "loss"'),
    "branches exchanged": _branches,
    "step out of its branch": _out_of_branch,
    "else branch": setting("Bad", "Arguments", "ErrorMessage", to="other"),
    "instance count": setting("Prep", *_CLUSTER, "InstanceCount", to=2),
    "output's uri": _text(f"{BUCKET}/prep/out", f"{BUCKET}/prep/two"),
    "upload mode": setting("Prep", *_OUTPUTS, 0, "S3Output", "S3UploadMode", to="Continuous"),
    "retry": setting("Train", "RetryPolicies", 0, "MaxAttempts", to=5),
    "order of retries": setting("Train", "RetryPolicies", to=lambda some: some[::-1]),
    "cache setting": setting("Evaluate", "CacheConfig", "ExpireAfter", to="P1D"),
    "cache off": setting("Evaluate", "CacheConfig", "Enabled", to=False),
    "cache on": setting("Prep", "CacheConfig", to={"Enabled": True}),
    "entry point": setting("Prep", "Arguments", "AppSpecification", "ContainerEntrypoint",
                           to=["/bin/sh", "-c"]),
    "code content": _text("code/v1/run.py", "code/v3/run.py"),
    "code's name": _text("code/v1/run.py", "code/v4/main.py"),
    "archive's content": _text("code/v1/sourcedir", "code/v3/sourcedir"),
    "archive's modes": _text("code/v1/sourcedir", "code/v4/sourcedir"),
    "code that is not known": _text("code/v1/run.py", "code/v9/run.py"),
    "parameter default": _parameter_becomes(lambda entry: entry.update(DefaultValue="slow")),
    "parameter's values": _parameter_becomes(lambda entry: entry.pop("EnumValues")),
    "parameter no longer read": setting("Prep", "Arguments", "Environment", "MODE", to="fast"),
    "parameter inlined with another value": _other_default_of_a_removed_one,
    "role": setting("Train", "Arguments", "RoleArn", to="arn:aws:iam::123456789012:role/other"),
    "network isolation": setting("Train", "Arguments", "EnableNetworkIsolation", to=True),
    "property file": setting("Evaluate", "PropertyFiles", 0, "FilePath", to="other.json"),
    "wait removed": setting("Audit", "DependsOn", to=None),
    "wait added": setting("Train", "DependsOn", to=["Audit"]),
    "work exchanged": _make_exchange_edit("Good", "Publish"),
    "step added": lambda document, chance: not document["Steps"].append(
        process_step("Extra", "true")),
    "step left out": _without_last,
}  # fmt: skip


def _shuffle_keys(value: Any, chance: random.Random) -> Any:
    if isinstance(value, list):
        return [_shuffle_keys(item, chance) for item in value]
    if not isinstance(value, dict):
        return value
    keys = chance.sample(list(value), len(value))
    return {key: _shuffle_keys(value[key], chance) for key in keys}


def _key_order(document: Document, chance: random.Random) -> bool:
    shuffled = _shuffle_keys(document, chance)
    document.clear()
    document |= shuffled
    return True


def _step_order(document: Document, chance: random.Random) -> bool:
    for steps in holders(document):
        chance.shuffle(steps)
    return True


def _redundant_wait(document: Document, chance: random.Random) -> bool:
    steps = find_steps(document)
    for step, earlier in (("Train", "Prep"), ("Evaluate", "Prep"), ("Gate", "Evaluate")):
        if step in steps:
            waits = steps[step].get("DependsOn", [])
            steps[step]["DependsOn"] = list(dict.fromkeys([*waits, earlier]))
    return True


def _make_rename_edit(name: str) -> Edit:
    def edit(document: Document, chance: random.Random) -> bool:
        new = f"{name}{chance.randrange(100)}"
        quoted = replace_text(document, f'"{name}"', f'"{new}"')
        return replace_text(document, f"Steps.{name}.", f"Steps.{new}.") or quoted

    return edit


def _inline_parameter(document: Document, chance: random.Random) -> bool:
    return _remove_parameter(document) and replace_text(
        document, '{"Get": "Parameters.Mode"}', '"fast"'
    )


def _new_parameter(document: Document, chance: random.Random) -> bool:
    document["Parameters"].append(_parameter("Type", "ml.m5.large"))
    return replace_text(document, '"InstanceType": "ml.m5.large"',
                    '"InstanceType": {"Get": "Parameters.Type"}')  # fmt: skip


def _parameter_renamed(document: Document, chance: random.Random) -> bool:
    steps = replace_text(document, "Parameters.Mode", "Parameters.Speed")
    return steps and replace_text(document, '"Name": "Mode"', '"Name": "Speed"')


def _by_text(document: Document, chance: random.Random) -> bool:
    """Put the known URI of an output in place of a reference, and wait for its step by name."""
    train = find_steps(document).get("Train")
    if train:
        train["Arguments"]["InputDataConfig"][0] = channel("train", f"{BUCKET}/prep/out")
        train["DependsOn"] = list(dict.fromkeys([*train.get("DependsOn", []), "Prep"]))
    return bool(train)


def _add_tags(document: Document, chance: random.Random) -> bool:
    for step in find_steps(document).values():
        if step["Type"] in ("Processing", "Training"):
            step["Arguments"]["Tags"] = [{"Key": "team", "Value": str(chance.random())}]
    return True


REWRITES: dict[str, Edit] = {
    "key order": _key_order,
    "step order": _step_order,
    "redundant DependsOn": _redundant_wait,
    "join of constants": setting("Good", *_SHELL, to=join("", "tr", "ue")),
    "join in a join": setting("Train", "Arguments", "Environment", "TITLE",
                              to=join("", join("-", "run", "of"), "-", get("Parameters.Mode"))),
    "parameter inlined": _inline_parameter,
    "constant as a parameter": _new_parameter,
    "parameter renamed": _parameter_renamed,
    "step renamed": _make_rename_edit("Train"),
    "branch renamed": _make_rename_edit("Good"),
    "code elsewhere": _text("code/v1/run.py", "code/v2/run.py"),
    "archive packed again": _text("code/v1/sourcedir", "code/v2/sourcedir"),
    "metadata": lambda document, chance: not document.update(Metadata={"commit": "abc"}),
    "display name": setting("Train", "DisplayName", to="The training"),
    "description": setting("Prep", "Description", to="It prepares"),
    "tags": _add_tags,
    "default member": setting("Train", "Arguments", "EnableNetworkIsolation", to=False),
    "default left out": setting("Prep", *_INPUTS, 0, "S3Input", "S3DataDistributionType", to=None),
    "empty environment": setting("Evaluate", "Arguments", "Environment", to={}),
    "order of inputs": setting("Prep", *_INPUTS, to=lambda some: some[::-1]),
    "order of channels": setting("Train", *_CHANNELS, to=lambda some: some[::-1]),
    "order of outputs": setting("Prep", *_OUTPUTS, to=lambda some: some[::-1]),
    "order of a parameter's values": _parameter_becomes(lambda e: e["EnumValues"].reverse()),
    "order of parameters": lambda document, chance: not document["Parameters"].reverse(),
    "cache that is off": setting("Train", "CacheConfig", to={"Enabled": False}),
    "reference as a text": _by_text,
}  # fmt: skip


def edit_definition(seed: int, kind: str) -> tuple[Document, Document, list[str]]:
    """Return a definition, what the seed's edits make of it, and their names."""
    chance = random.Random(seed)
    while True:
        first = chance.choice(pipelines())
        second = copy.deepcopy(first)
        few = chance.randint(0, 2) if kind == "differences" else chance.randint(1, 3)
        names = chance.sample(list(REWRITES), few)
        edits = [(name, REWRITES[name]) for name in names]
        if kind == "differences":
            edits.append(chance.choice(list(DIFFERENCES.items())))
        done = [edit(second, chance) for _, edit in edits]
        valid = not any(one.severity == "error" for one in check_definition(json.dumps(second)))
        if all(done) and valid:
            return first, second, [name for name, _ in edits]


def decide_edited_equality(
    seed: int, kind: str, files: dict[str, Path], *, static: bool
) -> tuple[EqualityResult, str]:
    """Return what the verb answers about the seed's two definitions, and the names of the edits."""
    first, second, names = edit_definition(seed, kind)
    sides = [first, second]
    random.Random(-seed).shuffle(sides)
    return decide_equality(*sides, Setting(files), static=static), ", ".join(names)
